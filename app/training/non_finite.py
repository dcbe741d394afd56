"""Losses and gradients that are not finite: which step, and which rows."""

import math

import numpy as np
import torch

from ..batching.loader import Loader
from ..data.dataset import Split
from ..errors import TrainingError
from ..modes.mode import Mode
from .step import StepResult

SHOWN_ROWS = 10
# Steps in a row; by then a loss scale of 65,536 would be below 1e-10
MAX_SKIPPED = 50
REMEDY = "start again from another checkpoint, with a lower train.learning_rate or with train.precision fp32"


class FiniteCheck:
    """Checks losses and gradient norms of steps, on the host; every rank calls it with the same steps."""

    def __init__(self, mode: Mode, loader: Loader) -> None:
        self.mode = mode
        self.loader = loader
        self.skipped_in_a_row = 0

    def __call__(self, steps: list[StepResult], losses: list[float]) -> None:
        """Check steps with their sums of losses over all ranks. Raises TrainingError for the first that is
        not finite, and after MAX_SKIPPED steps in a row that overflowed under fp16."""
        for step, loss, norm in zip(steps, losses, norms_on_host(steps), strict=True):
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if step.skipped else 0
            if not self.is_fine(step, loss, norm):
                self.report(step, loss)
            if self.skipped_in_a_row == MAX_SKIPPED:
                raise TrainingError(
                    f"step {step.step}: the last {MAX_SKIPPED} steps were skipped, because their gradients "
                    f"were not finite: the model no longer learns; {REMEDY}"
                )

    def report(self, step: StepResult, loss: float) -> None:
        """Raise TrainingError for a step that is not finite; every rank calls it."""
        norm = math.nan if step.grad_norm is None else float(step.grad_norm)
        advice = "look at these rows, or lower train.learning_rate, and resume with --output.resume auto"
        if not self.mode.group.reduce_sum(step.finite.sum()):
            advice = f"no row has finite logits, so the weights are to blame: {REMEDY}"
        raise TrainingError(
            f"step {step.step}: the loss is {loss / step.divisor:.4g} and the gradient norm {norm:.4g}; "
            f"{self.rows(step)}. No training state was written since; {advice}"
        )

    def is_fine(self, step: StepResult, loss: float, norm: float | None) -> bool:
        """Return whether loss and gradient `norm` of a step are finite, or only overflowed under fp16."""
        if not math.isfinite(loss):
            return False
        # Gradients that overflow under fp16 while the loss is finite are handled by the loss scaler.
        overflowed = self.mode.config.train.precision == "fp16" and step.skipped
        return norm is None or overflowed or math.isfinite(norm)

    def rows(self, step: StepResult) -> str:
        """Return the rows of a step whose logits are not finite, over all ranks, by row id and line."""
        own = torch.from_numpy(step.positions).to(self.mode.device)
        positions = self.mode.group.gather(own[~step.finite])
        description = "rows whose logits are not finite"
        if not len(positions):
            positions, description = (
                self.mode.group.gather(own),
                "all logits are finite; rows of the batch",
            )
        return f"{description}: {named_rows(self.loader.split, positions.cpu().numpy())}"


def norms_on_host(steps: list[StepResult]) -> list[float | None]:
    """Return the gradient norm of each step, copied from the device at once, to wait for it only once."""
    norms = [step.grad_norm for step in steps if step.grad_norm is not None]
    on_host = iter(torch.stack(norms).tolist() if norms else [])
    return [None if step.grad_norm is None else next(on_host) for step in steps]


def named_rows(split: Split, positions: np.ndarray) -> str:
    """Return the first rows at `positions` of a split by id and line, how many more there are, their file."""
    rows = np.unique(split.rows[positions])
    shown = ", ".join(f"{row} ({split.table.place(row)})" for row in rows[:SHOWN_ROWS].tolist())
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"{shown}{more} of {split.table.source}"
