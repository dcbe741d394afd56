"""The losses of the steps, added up over all ranks; one not finite ends the run, and names its rows."""

import math

import numpy as np
import torch

from ..batching.loader import Loader
from ..checkpoints.training_state import RunProgress
from ..data.dataset import Split
from ..errors import TrainingError
from ..modes.mode import Mode
from .step import StepResult

SHOWN_ROWS = 10
# Steps in a row; by then a loss scale of 65,536 would be below 1e-10
MAX_SKIPPED = 50
REMEDY = "start again from another checkpoint, with a lower train.learning_rate or with train.precision fp32"


class Losses:
    """The results of the last steps, which stay on the device until they are needed. Then they are checked,
    and added to the `progress` of the run."""

    def __init__(self, mode: Mode, loader: Loader, progress: RunProgress) -> None:
        self.mode, self.loader, self.progress = mode, loader, progress
        self.steps: list[StepResult] = []
        self.skipped_in_a_row = 0

    def collect(self) -> None:
        """Check and add up the losses of the steps since the last call. Every rank calls it. Waits for the
        device. Raises TrainingError for a loss or gradient that is not finite, and after MAX_SKIPPED steps in
        a row that overflowed under fp16."""
        steps, self.steps = self.steps, []
        if not steps:
            return
        sums = self.mode.group.reduce_sum(torch.stack([step.loss_sum for step in steps])).tolist()
        # Copied at once, to wait for the device only once
        measured = [step.grad_norm for step in steps if step.grad_norm is not None]
        norms = iter(torch.stack(measured).tolist() if measured else [])
        for step, loss in zip(steps, sums, strict=True):
            self.check(step, loss, math.nan if step.grad_norm is None else next(norms))
            self.progress.add(loss, step.divisor)

    def check(self, step: StepResult, loss: float, norm: float) -> None:
        """Raise TrainingError as `collect` does, given the sum of losses and the norm of gradients."""
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if step.skipped else 0
        if self.skipped_in_a_row == MAX_SKIPPED:
            raise TrainingError(
                f"step {step.step}: the last {MAX_SKIPPED} steps were skipped, because their gradients were "
                f"not finite: the model no longer learns; {REMEDY}"
            )
        # Gradients that overflow under fp16 while the loss is finite are handled by the loss scaler.
        overflowed = self.mode.config.train.precision == "fp16" and step.skipped
        is_fine = step.grad_norm is None or overflowed or math.isfinite(norm)
        if math.isfinite(loss) and is_fine:
            return
        own = torch.from_numpy(step.positions).to(self.mode.device)
        positions = self.mode.group.gather(own[~step.finite])
        found = "rows whose logits are not finite"
        if not len(positions):
            positions, found = self.mode.group.gather(own), "all logits are finite; rows of the batch"
        raise TrainingError(
            f"step {step.step}: the loss is {loss / step.divisor:.4g} and the gradient norm {norm:.4g}; "
            f"{found}: {named_rows(self.loader.split, positions.cpu().numpy())}. No state was written since; "
            "look at these rows, or lower train.learning_rate, and resume with --output.resume auto"
        )


def check_finite(results: np.ndarray, split: Split, step: int) -> None:
    """Raise TrainingError, naming the rows, unless all results, (num_rows, any), of a split are finite."""
    positions = np.flatnonzero(~np.isfinite(results).all(axis=1))
    if len(positions):
        raise TrainingError(
            f"step {step}: evaluation on {split.name} needs finite logits, found {len(positions):,} of "
            f"{len(results):,} rows without: {named_rows(split, positions)}. This model was not saved as the "
            "best; look at these rows, lower train.learning_rate or set train.precision fp32, and resume "
            "from the last training state: --output.resume auto"
        )


def named_rows(split: Split, positions: np.ndarray) -> str:
    """Return the first rows at `positions` of a split by id and line, how many more there are, their file."""
    rows = np.unique(split.rows[positions])
    shown = ", ".join(f"{row} ({split.table.place(row)})" for row in rows[:SHOWN_ROWS].tolist())
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"{shown}{more} of {split.table.source}"
