"""What the steps of a training did, and their losses over all ranks."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from ..batching.loader import Loader
from ..checkpoints.progress import RunProgress
from ..errors import TrainingError
from ..modes.mode import Mode
from .evaluation import named_rows


@dataclass(frozen=True)
class PassesResult:
    """What the passes of a step gave on this rank. The loss of the step is the sum of `loss_sum` over all
    ranks, divided by `divisor`. Tensors stay on the device, so that a step never waits for it."""

    loss_sum: torch.Tensor  # without dimensions
    divisor: int
    positions: np.ndarray  # (targets,): the row of each of this rank's targets
    finite: torch.Tensor  # (targets,) bool: whether all outputs of the target are


@dataclass(frozen=True)
class StepResult:
    """What one step did."""

    step: int  # from 1
    rows: int  # of the global batch, as tokens
    tokens: int
    learning_rate: float
    passes: PassesResult
    grad_norm: torch.Tensor  # L2 norm of all gradients before clipping, without dimensions; on the device
    skipped: bool  # no weight has changed, because the gradients overflowed under fp16


def add_losses(mode: Mode, loader: Loader, steps: list[StepResult], progress: RunProgress) -> None:
    """Check the losses of `steps`, which have stayed on the device until now, and add them to `progress`;
    every rank calls it. Raises TrainingError for a loss or gradient that is not finite."""
    if not steps:
        return
    loss_sums = torch.stack([step.passes.loss_sum for step in steps])
    loss_sums = mode.group.reduce_sum(loss_sums).tolist()
    norms = torch.stack([step.grad_norm for step in steps]).tolist()
    for step, loss_sum, norm in zip(steps, loss_sums, norms, strict=True):
        # Gradients that overflow under fp16 while the loss is finite are handled by the loss scaler.
        has_overflowed = mode.config.train.precision == "fp16" and step.skipped
        if not math.isfinite(loss_sum) or not (math.isfinite(norm) or has_overflowed):
            raise not_finite_error(mode, loader, step, loss_sum, norm)
        progress.add(loss_sum, step.passes.divisor)


def not_finite_error(
    mode: Mode, loader: Loader, step: StepResult, loss_sum: float, norm: float
) -> TrainingError:
    """Return the error of a step whose loss or gradient is not finite; every rank calls it. It names the rows
    without finite logits, or all rows of the batch where there are none."""
    positions = torch.from_numpy(step.passes.positions).to(mode.device)
    named_positions = mode.group.gather(positions[~step.passes.finite])
    which_rows = "rows whose logits are not finite"
    if not len(named_positions):
        named_positions = mode.group.gather(positions)
        which_rows = "all logits are finite; rows of the batch"
    loss = loss_sum / step.passes.divisor
    rows = named_rows(loader.split, named_positions.cpu().numpy())
    return TrainingError(
        f"step {step.step}: the loss is {loss:.4g} and the gradient norm {norm:.4g}; {which_rows}: {rows}. "
        "No state was written since; look at these rows, or lower train.learning_rate, and resume with "
        "--output.resume auto"
    )
