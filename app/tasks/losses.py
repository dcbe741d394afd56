"""Losses for imbalanced classes, in place of cross entropy: each returns a sum over rows, which the loop
divides."""

from __future__ import annotations

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, log_softmax

from ..runtime.precision import at_least_float32

# Of 1 - probability, whose power below 1 has no finite gradient at 0
LEAST = 1e-6


class FocalLoss:
    """Cross entropy times (1 - probability of the label) ** `gamma`, so that rows that are right already
    count less.

    Lin et al. 2017, https://arxiv.org/abs/1708.02002
    """

    def __init__(self, gamma: float, class_weights: torch.Tensor | None = None) -> None:
        self.gamma = gamma
        self.class_weights = class_weights

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of logits (num_rows, num_labels) and labels
        (num_rows,)."""
        log_of_label = log_softmax(at_least_float32(logits), dim=1).gather(1, labels[:, None])[:, 0]
        losses = -log_of_label * (-torch.expm1(log_of_label)).clamp_min(LEAST) ** self.gamma
        return (losses if self.class_weights is None else losses * self.class_weights[labels]).sum()


class LogitAdjustedLoss:
    """Cross entropy of logits + log(share of the class in train), so that the logits themselves do not favour
    large classes.

    Menon et al. 2021, https://arxiv.org/abs/2007.07314. `shares` (num_labels,) are above 0 and add up to 1.
    """

    def __init__(
        self, shares: torch.Tensor, class_weights: torch.Tensor | None = None, label_smoothing: float = 0.0
    ) -> None:
        self.log_shares = shares.log()
        self.class_weights = class_weights
        self.label_smoothing = label_smoothing

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of logits (num_rows, num_labels) and labels
        (num_rows,)."""
        adjusted = at_least_float32(logits) + self.log_shares
        return cross_entropy(
            adjusted, labels, self.class_weights, reduction="sum", label_smoothing=self.label_smoothing
        )


class LabelSetLoss:
    """Binary cross entropy of each row and label, with positive weights, (num_labels,); with `gamma`, as a
    focal loss.

    `gamma` is the power of 1 - the probability of what is true: that the row has the label, or that it has
    not.
    """

    def __init__(self, positive_weights: torch.Tensor | None, gamma: float = 0.0) -> None:
        self.positive_weights = positive_weights
        self.gamma = gamma

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows and labels, without dimensions, of logits and 0/1 labels, both (num_rows,
        num_labels)."""
        logits = at_least_float32(logits)
        targets = labels.to(logits.dtype)
        if not self.gamma:
            return binary_cross_entropy_with_logits(
                logits, targets, pos_weight=self.positive_weights, reduction="sum"
            )
        losses = binary_cross_entropy_with_logits(
            logits, targets, pos_weight=self.positive_weights, reduction="none"
        )
        wrong = torch.sigmoid(torch.where(labels.bool(), -logits, logits))
        return (losses * wrong.clamp_min(LEAST) ** self.gamma).sum()
