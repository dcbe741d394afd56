"""transformers' Trainer with the meter after each step, for `trainer_default` and `trainer_tuned`."""

from __future__ import annotations

import torch
from transformers import Trainer, TrainerCallback

from benchmarks.harness.meter import Meter


class MeteredTrainer(Trainer):
    """A Trainer that trains the rows in `order`,
    and reports each optimizer step and its loss to the meter."""

    def __init__(self, meter: Meter, order: list[int], **arguments) -> None:
        super().__init__(**arguments)
        self.order = order
        self.add_callback(AfterStep(self, meter))

    def _get_train_sampler(self, train_dataset=None) -> list[int]:
        return self.order

    def training_step(self, *args, **kwargs) -> torch.Tensor:
        self.last_loss = super().training_step(*args, **kwargs)
        return self.last_loss


class AfterStep(TrainerCallback):
    """Calls the meter when an optimizer step is done."""

    def __init__(self, trainer: MeteredTrainer, meter: Meter) -> None:
        self.trainer = trainer
        self.meter = meter

    def on_step_end(self, *args, **kwargs) -> None:
        self.meter.step_done(self.trainer.last_loss)
