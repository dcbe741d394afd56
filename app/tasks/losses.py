"""Losses to train with: each returns a sum over rows, which the loop divides. A new one is a function, its
entry in a table, and its name in `TASKS` of app/config/schema.py."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from ..runtime.devices import at_least_float32

MIN_ERROR = 1e-6  # of 1 - probability, whose power below 1 has no finite gradient at 0
FOCAL_GAMMA = 2.0


def focal(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Cross entropy times (1 - probability of the label) ** FOCAL_GAMMA: rows that are right count less.
    Lin et al. 2017, https://arxiv.org/abs/1708.02002"""
    log_of_label = F.log_softmax(at_least_float32(logits), dim=1).gather(1, labels[:, None])[:, 0]
    error = (-torch.expm1(log_of_label)).clamp_min(MIN_ERROR)
    losses = -log_of_label * error**FOCAL_GAMMA
    if weights is not None:
        losses = losses * weights[labels]
    return losses.sum()


def binary(
    logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None, gamma: float = 0.0
) -> torch.Tensor:
    """Binary cross entropy of each row and label, times (1 - probability of the truth) ** gamma. `weights`
    (num_labels,) are for rows that have the label."""
    logits = at_least_float32(logits)
    targets = labels.to(logits.dtype)
    losses = F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none")
    if gamma:
        error = torch.sigmoid(torch.where(labels.bool(), -logits, logits))
        losses = losses * error.clamp_min(MIN_ERROR) ** gamma
    return losses.sum()


# The keys are values of train.loss. A loss of classes gets logits (num_rows, num_labels) and labels
# (num_rows,); one of several labels a row gets 0/1 labels (num_rows, num_labels). Both get the weights of the
# labels, (num_labels,) or None. Where rows have distributions of labels, both get these in place of labels,
# (num_rows, num_labels), but for focal; the weights are then those of the shares of a row.
CLASS_LOSSES = {
    "cross_entropy": partial(F.cross_entropy, reduction="sum"),
    "focal": focal,
    # It gets logits + log(share of the class in train), so that the logits themselves do not favour large
    # classes: Menon et al. 2021, https://arxiv.org/abs/2007.07314
    "logit_adjusted": partial(F.cross_entropy, reduction="sum"),
}
LIST_LOSSES = {"cross_entropy": binary, "focal": partial(binary, gamma=FOCAL_GAMMA)}
# The squared error of a number, or its Huber loss, which is linear from an error of 1 on
NUMBER_LOSSES = {"cross_entropy": F.mse_loss, "huber": F.huber_loss}


@dataclass(frozen=True)
class Loss:
    """A loss is called with the outputs of the model for rows, and their labels, and returns a sum, ()."""

    name: str
    weights: torch.Tensor | None = None  # of the labels, (num_labels,)


@dataclass(frozen=True)
class ClassLoss(Loss):
    """The loss of class ids, (num_rows,), or of distributions, (num_rows, num_labels). `class_shares`
    (num_labels,) are the shares of the train rows that the classes have, above 0. `logits_of` makes logits,
    (num_rows, num_labels), of the outputs."""

    class_shares: torch.Tensor | None = None
    logits_of: Callable[[torch.Tensor], torch.Tensor] = lambda outputs: outputs

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.logits_of(outputs)
        if self.name == "logit_adjusted":
            logits = at_least_float32(logits) + self.class_shares.log()
        if labels.is_floating_point():
            labels = labels.to(logits.dtype)
        return CLASS_LOSSES[self.name](logits, labels, self.weights)


class ListLoss(Loss):
    """The loss of several labels a row, (num_rows, num_labels), as the outputs: 0 and 1, or probabilities."""

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return LIST_LOSSES[self.name](outputs, labels, self.weights)


class NumberLoss(Loss):
    """The loss of one number a row, (num_rows,), for outputs (num_rows, 1)."""

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs = at_least_float32(outputs)[:, 0]
        return NUMBER_LOSSES[self.name](outputs, targets.to(outputs.dtype), reduction="sum")
