"""The training loss of one number a row."""

from __future__ import annotations

import torch
from torch.nn.functional import huber_loss, mse_loss

from ..runtime.precision import at_least_float32

# By train.loss
LOSSES = {"cross_entropy": mse_loss, "huber": huber_loss}


class NumberLoss:
    """The squared error of one number a row, or its Huber loss, which is linear from an error of 1 on."""

    def __init__(self, name: str) -> None:
        self.function = LOSSES[name]

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of outputs (num_rows, 1) and targets (num_rows,)."""
        outputs = at_least_float32(outputs)[:, 0]
        return self.function(outputs, targets.to(outputs.dtype), reduction="sum")

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the squared difference of two predictions, as R-Drop's authors do, summed over rows."""
        return mse_loss(at_least_float32(one), at_least_float32(other), reduction="sum")
