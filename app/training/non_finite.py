"""Losses and gradients that are not finite: which step, which rows, and whether the run stops or skips the step."""

from __future__ import annotations

import logging
import math

import numpy as np
import torch

from app.batching.loader import Loader
from app.data.dataset import Split
from app.errors import TrainingError
from app.strategies.strategy import Strategy
from app.training.loop import StepLog

logger = logging.getLogger(__name__)
SHOWN_ROWS = 10


class FiniteCheck:
    """Checks the losses and gradient norms of steps once they are on the host; every rank calls it with the same steps."""

    def __init__(self, strategy: Strategy, loader: Loader, on_nonfinite: str) -> None:
        self.strategy = strategy
        self.loader = loader
        self.on_nonfinite = on_nonfinite

    def __call__(self, steps: list[StepLog], losses: list[float]) -> None:
        """Check steps with their sums of row losses over all ranks.

        Raises TrainingError for the first step that is not finite, or warns of each where such steps are skipped.
        """
        for step, loss in zip(steps, losses, strict=True):
            if self.is_fine(step, loss):
                continue
            norm = math.nan if step.grad_norm is None else float(step.grad_norm)
            problem = f"step {step.step}: the loss is {loss / step.rows:.4g} and the gradient norm {norm:.4g}; {self.rows(step)}"
            if self.on_nonfinite == "stop":
                raise TrainingError(
                    f"{problem}. No training state was written since; look at these rows, lower train.learning_rate, or skip "
                    "such steps: --output.resume auto --train.on_nonfinite skip"
                )
            if self.strategy.group.rank == 0:
                logger.warning("%s; the step was skipped", problem)

    def is_fine(self, step: StepLog, loss: float) -> bool:
        """Return whether the loss and the gradient norm of a step are finite, or only overflowed under fp16."""
        if not math.isfinite(loss):
            return False
        # Gradients that overflow under fp16 while the loss is finite are handled by the loss scaler.
        overflowed = self.strategy.config.train.precision == "fp16" and step.skipped
        return step.grad_norm is None or overflowed or math.isfinite(float(step.grad_norm))

    def rows(self, step: StepLog) -> str:
        """Return the rows of a step whose logits are not finite, over all ranks, by row id and line of the file."""
        own = torch.from_numpy(step.passes.positions).to(self.strategy.device)
        positions = self.strategy.group.gather(own[~step.passes.finite])
        description = "rows whose logits are not finite"
        if not len(positions):
            positions, description = self.strategy.group.gather(own), "all logits are finite; rows of the batch"
        return f"{description}: {named_rows(self.loader.split, positions.cpu().numpy())}"


def named_rows(split: Split, positions: np.ndarray) -> str:
    """Return the first rows at `positions` of a split by row id and line, how many more there are, and their file."""
    rows = np.sort(split.rows[positions])
    lines = split.table.array("lines")
    shown = ", ".join(f"{row} ({split.table.row_unit} {lines[row]})" for row in rows[:SHOWN_ROWS])
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"{shown}{more} of {split.table.source}"
