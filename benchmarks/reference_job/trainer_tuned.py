"""transformers' Trainer at its best: bf16 where that is faster, rows of similar length together, fused AdamW,
no log, no saving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    TrainingArguments,
)
from transformers.trainer_pt_utils import get_length_grouped_indices

from benchmarks.harness.meter import Meter, count_inputs
from benchmarks.reference_job.job import Job, tokenised
from benchmarks.reference_job.metered_trainer import MeteredTrainer

# Batches whose rows `group_by_length` sorts together, in an epoch of 200 batches or more.
MEGA_BATCH = 50


def grouped(rows: np.ndarray, lengths: np.ndarray, batch_size: int) -> np.ndarray:
    """Return rows as `group_by_length` puts them, and then the batches in a random order.

    Its own order begins with the longest texts, which are then not in the steps that follow.
    """
    order = get_length_grouped_indices(lengths[rows].tolist(), batch_size, mega_batch_mult=MEGA_BATCH)
    batches = rows[order].reshape(-1, batch_size)
    return batches[torch.randperm(len(batches)).numpy()].ravel()


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
        dataloader_num_workers=2 if is_cuda else 0,
        dataloader_persistent_workers=is_cuda,
        logging_strategy="no",
        # It would wait for the device at every step
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not is_cuda,
    )
    rows = tokenised(job, tokenizer)
    lengths = np.array([len(row["input_ids"]) for row in rows])
    trainer = MeteredTrainer(
        meter,
        job.order(lambda stretch: grouped(stretch, lengths, job.batch_size)),
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8 if is_cuda else None),
    )
    meter.start(count_inputs(model), precision="bf16" if job.bf16 else "fp32")
    trainer.train()
