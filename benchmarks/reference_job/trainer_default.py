"""transformers' Trainer with its defaults: fp32, `DataCollatorWithPadding`, batches drawn at random.

Only what makes it the same job is set: batch size, learning rate and weight decay, a constant schedule, no
clipping.
"""

from __future__ import annotations

from pathlib import Path

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    TrainingArguments,
)

from benchmarks.harness.meter import Meter, count_inputs
from benchmarks.reference_job.job import Job, tokenised
from benchmarks.reference_job.metered_trainer import MeteredTrainer


def main(job: Job, meter: Meter) -> None:
    """Train until the meter has seen enough."""
    tokenizer = AutoTokenizer.from_pretrained(job.checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(job.checkpoint, **job.model_settings)
    arguments = TrainingArguments(
        output_dir=str(Path(job.checkpoint) / "trainer_default"),
        per_device_train_batch_size=job.batch_size,
        learning_rate=job.learning_rate,
        weight_decay=job.weight_decay,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        max_steps=job.steps,
        seed=job.seed,
        save_strategy="no",
        report_to="none",
        use_cpu=job.device == "cpu",
    )
    trainer = MeteredTrainer(
        meter,
        job.order(),
        model=model,
        args=arguments,
        train_dataset=tokenised(job, tokenizer),
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    meter.start(count_inputs(model), precision="fp32")
    trainer.train()
