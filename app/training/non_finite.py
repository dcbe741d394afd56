"""Losses and gradients that are not finite: which step, which rows, and what the run does about it."""

from __future__ import annotations

import logging
import math

import numpy as np
import torch

from app.batching.loader import Loader
from app.errors import TrainingError
from app.strategies.strategy import Strategy
from app.training.loop import StepLog

logger = logging.getLogger(__name__)
SHOWN_ROWS = 10


class FiniteCheck:
    """Looks at the figures of steps when they leave the device; every rank calls it with the same steps."""

    def __init__(self, strategy: Strategy, loader: Loader, on_nonfinite: str) -> None:
        self.strategy = strategy
        self.loader = loader
        self.on_nonfinite = on_nonfinite

    def __call__(self, steps: list[StepLog], losses: list[float]) -> None:
        """Check steps with their global sums of row losses: raise TrainingError for the first bad one, or warn of each."""
        for step, loss in zip(steps, losses, strict=True):
            norm = math.nan if step.grad_norm is None else float(step.grad_norm)
            # Gradients that overflow under fp16 while the loss is finite are what the loss scaler is for.
            overflowed = self.strategy.config.train.precision == "fp16" and step.skipped
            if math.isfinite(loss) and (math.isfinite(norm) or step.grad_norm is None or overflowed):
                continue
            found = f"step {step.step}: the loss is {loss / step.rows:.4g} and the gradient norm {norm:.4g}; {self.rows(step)}"
            if self.on_nonfinite == "stop":
                raise TrainingError(
                    f"{found}. No training state was written since; look at these rows, lower train.learning_rate, or go on "
                    "without such steps: --output.resume auto --train.on_nonfinite skip"
                )
            if self.strategy.group.rank == 0:
                logger.warning("%s; the step was left out", found)

    def rows(self, step: StepLog) -> str:
        """Return which rows of a step had logits that are not finite, over all ranks, by row id and place in the file."""
        own = torch.from_numpy(step.positions).to(self.strategy.device)
        found = self.strategy.group.gather(own[~step.finite])
        which = "rows whose logits are not finite"
        if not len(found):
            found, which = self.strategy.group.gather(own), "all logits are finite; rows of the batch"
        split = self.loader.split
        rows = np.sort(split.rows[found.cpu().numpy()])
        lines = split.table.array("lines")
        shown = ", ".join(f"{row} ({split.table.place} {lines[row]})" for row in rows[:SHOWN_ROWS])
        more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
        return f"{which}: {shown}{more} of {split.table.source}"
