"""transformers' Trainer with the meter after each step, for `trainer_default` and `trainer_tuned`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.harness.meter import Meter, count_inputs
from benchmarks.reference_job.job import Job, tokenised


class MeteredTrainer(Trainer):
    """A Trainer that trains the rows in `order`."""

    order: list[int]

    def _get_train_sampler(self, train_dataset=None) -> list[int]:
        return self.order

    def training_step(self, *args, **kwargs) -> torch.Tensor:
        self.last_loss = super().training_step(*args, **kwargs)
        return self.last_loss


class AfterStep(TrainerCallback):
    """Reports each optimizer step and its loss to the meter."""

    def __init__(self, trainer: MeteredTrainer, meter: Meter) -> None:
        self.trainer, self.meter = trainer, meter

    def on_step_end(self, *args, **kwargs) -> None:
        self.meter.step_done(self.trainer.last_loss)


def train(
    job: Job,
    meter: Meter,
    arrange: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    multiple: int | None = None,
    **arguments,
) -> None:
    """Train until the meter has seen enough, with more `TrainingArguments` than make it the same job.

    `arrange(rows, lengths)` puts rows into another order than a random one; batches are padded to a
    `multiple`.
    """
    tokenizer = AutoTokenizer.from_pretrained(job.checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(job.checkpoint, **job.model_settings)
    rows = tokenised(job, tokenizer)
    lengths = np.array([len(row["input_ids"]) for row in rows])
    settings = TrainingArguments(
        output_dir=str(Path(job.checkpoint) / "trainer"),
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
        **arguments,
    )
    collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple)
    trainer = MeteredTrainer(model=model, args=settings, train_dataset=rows, data_collator=collate)
    trainer.order = job.order(arrange and (lambda some: arrange(some, lengths)))
    trainer.add_callback(AfterStep(trainer, meter))
    meter.start(count_inputs(model), precision="bf16" if settings.bf16 else "fp32")
    trainer.train()
