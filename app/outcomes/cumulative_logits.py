"""Cumulative logits of ordered labels -> the probability of each label, in NumPy and in torch.

The outputs of a row are z. The logit of a label of at least 1 is z[0]; that of a label of at least k + 1 is
lower than that of at least k by softplus(z[k]), so it is in order whatever z is (McCullagh 1980). The last
output is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from .losses import ClassLoss

# Between two labels, so that none has a probability of exactly 0
LEAST_STEP = 1e-4


def class_logits(outputs: np.ndarray) -> np.ndarray:
    """Return log probabilities of the labels, (num_rows, num_labels) float64, of outputs of this shape."""
    outputs = np.asarray(outputs, np.float64)
    steps = np.logaddexp(0, outputs[:, 1:-1]) + LEAST_STEP
    cumulative = outputs[:, :1] - np.cumsum(np.c_[np.zeros(len(outputs)), steps], axis=1)
    above, below = -np.logaddexp(0, -cumulative), -np.logaddexp(0, cumulative)
    between = above[:, :-1] + below[:, 1:] + np.log(-np.expm1(-steps))
    return np.hstack([below[:, :1], between, above[:, -1:]])


def class_log_probabilities(outputs: torch.Tensor) -> torch.Tensor:
    """Return what `class_logits` does, as a tensor of the type of the outputs."""
    import torch
    from torch.nn.functional import logsigmoid, softplus

    steps = softplus(outputs[:, 1:-1]) + LEAST_STEP
    cumulative = outputs[:, :1] - torch.cat([torch.zeros_like(outputs[:, :1]), steps], dim=1).cumsum(dim=1)
    above, below = logsigmoid(cumulative), logsigmoid(-cumulative)
    between = above[:, :-1] + below[:, 1:] + torch.log(-torch.expm1(-steps))
    return torch.cat([below[:, :1], between, above[:, -1:]], dim=1)


def bias_of_shares(shares: np.ndarray) -> np.ndarray:
    """Return outputs whose probabilities are the shares of the labels, (num_labels,) above 0."""
    above = 1 - np.cumsum(shares)[:-1]
    cumulative = np.log(above / (1 - above))
    steps = np.maximum(-np.diff(cumulative) - LEAST_STEP, LEAST_STEP)
    return np.r_[cumulative[:1], np.log(np.expm1(steps)), 0.0]


class CumulativeLoss:
    """A `loss` of class ids, of the outputs of ordered labels."""

    def __init__(self, loss: ClassLoss) -> None:
        self.loss = loss

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, (), of outputs (num_rows, num_labels) and labels (num_rows,)."""
        return self.loss(self._logits(outputs), labels)

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.loss.divergence(self._logits(one), self._logits(other))

    def _logits(self, outputs: torch.Tensor) -> torch.Tensor:
        from ..runtime.precision import at_least_float32

        return class_log_probabilities(at_least_float32(outputs))
