"""transformers' Trainer at its best: bf16 where that is faster, rows of similar length together, fused AdamW, no log, no saving."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, TrainingArguments

from benchmarks.harness.meter import Meter, count_inputs
from benchmarks.reference_job.job import Job, tokenised
from benchmarks.reference_job.metered_trainer import MeteredTrainer


class FairSampleTrainer(MeteredTrainer):
    """Trains the batches that `group_by_length` makes, in a random order.

    Its own order begins each fifty batches with the longest texts; a few steps would then be no fair sample of an epoch.
    """

    def _get_train_sampler(self, train_dataset=None) -> list[int]:
        rows = list(super()._get_train_sampler(train_dataset))
        size = self.args.train_batch_size
        batches = [rows[start : start + size] for start in range(0, len(rows) - len(rows) % size, size)]
        return [row for index in torch.randperm(len(batches)) for row in batches[index]]


def main(job: Job, meter: Meter) -> None:
    """Train until the meter has seen enough."""
    is_cuda = job.device == "cuda"
    tokenizer = AutoTokenizer.from_pretrained(job.checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(job.checkpoint, **job.model_settings)
    arguments = TrainingArguments(
        output_dir=str(Path(job.checkpoint) / "trainer_tuned"),
        per_device_train_batch_size=job.batch_size,
        learning_rate=job.learning_rate,
        weight_decay=job.weight_decay,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        max_steps=job.steps,
        seed=job.seed,
        bf16=job.bf16,
        tf32=True if is_cuda and job.bf16 else None,
        optim="adamw_torch_fused",
        train_sampling_strategy="group_by_length" if job.shuffle else "sequential",
        dataloader_num_workers=2 if is_cuda else 0,
        dataloader_persistent_workers=is_cuda,
        logging_strategy="no",
        logging_nan_inf_filter=False,  # it would wait for the device at every step
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not is_cuda,
    )
    trainer = (FairSampleTrainer if job.shuffle else MeteredTrainer)(
        meter,
        model=model,
        args=arguments,
        train_dataset=tokenised(job, tokenizer),
        data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8 if is_cuda else None),
    )
    meter.start(count_inputs(model), precision="bf16" if job.bf16 else "fp32")
    trainer.train()
