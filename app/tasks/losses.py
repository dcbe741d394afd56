"""Losses to train with: each returns a sum over rows, which the loop divides. A new one is a function, its
entry in a table, and its name in `TASKS` of app/config/data_settings.py."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    log_softmax,
    mse_loss,
)

from ..errors import InputError, listed
from ..runtime.devices import at_least_float32

LEAST = 1e-6  # of 1 - probability, whose power below 1 has no finite gradient at 0
FOCAL_GAMMA = 2.0


def focal(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Cross entropy times (1 - probability of the label) ** FOCAL_GAMMA: rows that are right count less.
    Lin et al. 2017, https://arxiv.org/abs/1708.02002"""
    log_of_label = log_softmax(at_least_float32(logits), dim=1).gather(1, labels[:, None])[:, 0]
    losses = -log_of_label * (-torch.expm1(log_of_label)).clamp_min(LEAST) ** FOCAL_GAMMA
    return (losses if weights is None else losses * weights[labels]).sum()


def binary(
    logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None, gamma: float = 0.0
) -> torch.Tensor:
    """Binary cross entropy of each row and label, times (1 - probability of what is true) ** gamma; `weights`
    (num_labels,) of rows that have the label."""
    logits = at_least_float32(logits)
    targets = labels.to(logits.dtype)
    losses = binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none")
    if gamma:
        wrong = torch.sigmoid(torch.where(labels.bool(), -logits, logits))
        losses = losses * wrong.clamp_min(LEAST) ** gamma
    return losses.sum()


# By train.loss; a loss of classes gets logits (num_rows, num_labels) and labels (num_rows,), one of several
# labels a row 0/1 labels (num_rows, num_labels), and both the weights of the labels, (num_labels,) or None.
CLASS_LOSSES = {
    "cross_entropy": partial(cross_entropy, reduction="sum"),
    "focal": focal,
    # Of logits + log(share of the class in train), so that the logits themselves do not favour large classes:
    # Menon et al. 2021, https://arxiv.org/abs/2007.07314
    "logit_adjusted": partial(cross_entropy, reduction="sum"),
}
LIST_LOSSES = {"cross_entropy": binary, "focal": partial(binary, gamma=FOCAL_GAMMA)}
# The squared error of a number, or its Huber loss, which is linear from an error of 1 on
NUMBER_LOSSES = {"cross_entropy": mse_loss, "huber": huber_loss}


@dataclass(frozen=True)
class ClassLoss:
    """The loss `name` of class ids: the sum over rows, (), of outputs (num_rows, num_labels) and labels
    (num_rows,). `shares` (num_labels,) are those of the classes in train, above 0. `logits_of` makes logits
    of the outputs of the model."""

    name: str
    weights: torch.Tensor | None = None
    shares: torch.Tensor | None = None
    logits_of: Callable[[torch.Tensor], torch.Tensor] = lambda outputs: outputs

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.logits_of(outputs)
        if self.name == "logit_adjusted":
            logits = at_least_float32(logits) + self.shares.log()
        return CLASS_LOSSES[self.name](logits, labels, self.weights)

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the mean of both KL divergences between two outputs of the same rows, summed over rows."""
        one, other = (self.logits_of(outputs).log_softmax(dim=1) for outputs in (one, other))
        return ((one.exp() - other.exp()) * (one - other)).sum() / 2


@dataclass(frozen=True)
class ListLoss:
    """The loss `name` of several labels a row: the sum over rows and labels, (), of outputs and 0/1 labels,
    (num_rows, num_labels)."""

    name: str
    weights: torch.Tensor | None = None

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return LIST_LOSSES[self.name](outputs, labels, self.weights)

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return it as `ClassLoss` does, summed over rows and labels: of having a label, or not."""
        return ((one.sigmoid() - other.sigmoid()) * (one - other)).sum() / 2


@dataclass(frozen=True)
class NumberLoss:
    """The loss `name` of one number a row: the sum over rows, (), of outputs (num_rows, 1) and targets
    (num_rows,)."""

    name: str

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs = at_least_float32(outputs)[:, 0]
        return NUMBER_LOSSES[self.name](outputs, targets.to(outputs.dtype), reduction="sum")

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the squared difference of two predictions, as R-Drop's authors do, summed over rows."""
        return mse_loss(at_least_float32(one), at_least_float32(other), reduction="sum")


def label_weights(
    setting: str | list[float],
    counts: np.ndarray,
    label_names: list[str],
    device: torch.device,
    num_rows: int | None = None,
) -> torch.Tensor | None:
    """Return the factors of `train.class_weights` on the losses of labels, (num_labels,), or None for 1.

    `counts` are the train rows with each label. With one label a row it is the factor on the loss of a row;
    with several, of `num_rows` rows, that on the loss of having the label, above 0.
    """
    if setting == "none":
        return None
    is_one = num_rows is None
    if setting == "balanced":
        rows = counts.sum() / len(counts) if is_one else np.maximum(num_rows - counts, 1)
        setting = rows / counts
    weights = torch.tensor(setting, dtype=torch.get_default_dtype(), device=device)
    rule = "numbers from 0, in single precision not all 0" if is_one else "finite numbers above 0"
    are_weights = (weights >= 0).all() and weights.any() if is_one else (weights > 0).all()
    if len(weights) != len(label_names) or not weights.isfinite().all() or not are_weights:
        raise InputError(
            f"train.class_weights must be {len(label_names)} {rule}, one for each of {listed(label_names)}; "
            f"found {setting}"
        )
    return weights
