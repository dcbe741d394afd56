"""Training losses: each returns a sum over rows, which the loop divides, and their `divergence` for R-Drop. A
new one is its class, an entry of a table at the end, and its name in `TASKS`."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    log_softmax,
    mse_loss,
)

from ..config.schema import TrainConfig
from ..errors import InputError
from ..runtime.precision import at_least_float32
from .label_weights import class_weights, positive_weights

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Of 1 - probability, whose power below 1 has no finite gradient at 0
LEAST = 1e-6
FOCAL_GAMMA = 2.0


class ClassLoss:
    """A loss of class ids, whose outputs are logits (num_rows, num_labels)."""

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the mean of both KL divergences between two outputs of the same rows, summed over rows."""
        one, other = one.log_softmax(dim=1), other.log_softmax(dim=1)
        return ((one.exp() - other.exp()) * (one - other)).sum() / 2


class CrossEntropy(ClassLoss):
    """Cross entropy with class weights, (num_labels,) or None."""

    def __init__(self, class_weights: torch.Tensor | None) -> None:
        self.class_weights = class_weights

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, (), of logits (num_rows, num_labels) and labels (num_rows,)."""
        return cross_entropy(logits, labels, self.class_weights, reduction="sum")


class FocalLoss(ClassLoss):
    """Cross entropy times (1 - probability of the label) ** FOCAL_GAMMA, so that rows that are right already
    count less.

    Lin et al. 2017, https://arxiv.org/abs/1708.02002
    """

    def __init__(self, class_weights: torch.Tensor | None = None) -> None:
        self.class_weights = class_weights

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, (), of logits (num_rows, num_labels) and labels (num_rows,)."""
        log_of_label = log_softmax(at_least_float32(logits), dim=1).gather(1, labels[:, None])[:, 0]
        losses = -log_of_label * (-torch.expm1(log_of_label)).clamp_min(LEAST) ** FOCAL_GAMMA
        return (losses if self.class_weights is None else losses * self.class_weights[labels]).sum()


class LogitAdjustedLoss(ClassLoss):
    """Cross entropy of logits + log(share of the class in train), so that the logits themselves do not favour
    large classes.

    Menon et al. 2021, https://arxiv.org/abs/2007.07314. `shares` (num_labels,) are above 0 and add up to 1.
    """

    def __init__(self, shares: torch.Tensor, class_weights: torch.Tensor | None = None) -> None:
        self.log_shares = shares.log()
        self.class_weights = class_weights

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, (), of logits (num_rows, num_labels) and labels (num_rows,)."""
        adjusted = at_least_float32(logits) + self.log_shares
        return cross_entropy(adjusted, labels, self.class_weights, reduction="sum")


class BinaryCrossEntropy:
    """Binary cross entropy of each row and label, with positive weights, (num_labels,); with `gamma` a focal
    loss, by the power of 1 - the probability of what is true."""

    is_per_label = True
    decides_at_zero = False

    def __init__(self, positive_weights: torch.Tensor | None, gamma: float = 0.0) -> None:
        self.positive_weights = positive_weights
        self.gamma = gamma

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows and labels, (), of logits and 0/1 labels, both (num_rows, num_labels)."""
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

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return it as `ClassLoss` does, summed over rows and labels: of having a label, or not."""
        return ((one.sigmoid() - other.sigmoid()) * (one - other)).sum() / 2


class ZLPR:
    """Softmax cross entropy for several labels a row: the logits of a row's labels shall be above 0, the
    others below.

    log(1 + sum of exp(logit) over the labels that a row has not) + log(1 + sum of exp(-logit) over those that
    it has). Su et al. 2022, https://arxiv.org/abs/2208.02955
    """

    # One loss a row, not one for each label
    is_per_label = False
    # A row has the labels with a logit from 0 on, so no thresholds are chosen
    decides_at_zero = True

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, (), of logits and 0/1 labels, both (num_rows, num_labels)."""
        logits = at_least_float32(logits)
        has_label, zero = labels.bool(), torch.zeros_like(logits[:, :1])
        absent = torch.cat([zero, logits.masked_fill(has_label, -torch.inf)], dim=1)
        present = torch.cat([zero, (-logits).masked_fill(~has_label, -torch.inf)], dim=1)
        return (absent.logsumexp(dim=1) + present.logsumexp(dim=1)).sum()


class NumberLoss:
    """The squared error of one number a row, or its Huber loss, which is linear from an error of 1 on."""

    def __init__(self, name: str) -> None:
        self.function = NUMBER_LOSSES[name]

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of outputs (num_rows, 1) and targets (num_rows,)."""
        outputs = at_least_float32(outputs)[:, 0]
        return self.function(outputs, targets.to(outputs.dtype), reduction="sum")

    def divergence(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the squared difference of two predictions, as R-Drop's authors do, summed over rows."""
        return mse_loss(at_least_float32(one), at_least_float32(other), reduction="sum")


@dataclass(frozen=True)
class LossSettings:
    """What a loss is made of: the number of train rows of each label, (num_labels,), and weights of labels,
    (num_labels,) on the device, or None."""

    counts: np.ndarray
    weights: torch.Tensor | None
    device: torch.device

    def shares(self) -> torch.Tensor:
        """Return the share of each class in the train rows, (num_labels,) float32."""
        return torch.tensor(
            self.counts / self.counts.sum(), dtype=torch.get_default_dtype(), device=self.device
        )


# By train.loss, for one number a row, for one label and for several
NUMBER_LOSSES = {"cross_entropy": mse_loss, "huber": huber_loss}
SINGLE_LABEL_LOSSES: dict[str, Callable[[LossSettings], Loss]] = {
    "cross_entropy": lambda of: CrossEntropy(of.weights),
    "focal": lambda of: FocalLoss(of.weights),
    "logit_adjusted": lambda of: LogitAdjustedLoss(of.shares(), of.weights),
}
MULTI_LABEL_LOSSES: dict[str, Callable[[LossSettings], Loss]] = {
    "cross_entropy": lambda of: BinaryCrossEntropy(of.weights),
    "focal": lambda of: BinaryCrossEntropy(of.weights, FOCAL_GAMMA),
    "zlpr": lambda of: ZLPR(),
}


def single_label_loss(
    train: TrainConfig, labels: np.ndarray, label_names: list[str], device: torch.device
) -> Loss:
    """Return the loss of `train.loss` for class ids, `labels` (num_rows,) of the train rows."""
    counts = np.bincount(labels, minlength=len(label_names))
    weights = class_weights(train.class_weights, counts, label_names)
    return _make(SINGLE_LABEL_LOSSES, train, counts, weights, device)


def multi_label_loss(
    train: TrainConfig, labels: np.ndarray, label_names: list[str], device: torch.device
) -> Loss:
    """Return the loss of `train.loss` for several labels; `labels` (num_rows, num_labels) of train."""
    counts = np.asarray(labels).sum(axis=0, dtype=np.int64)
    weights = positive_weights(train.class_weights, counts, len(labels), label_names)
    return _make(MULTI_LABEL_LOSSES, train, counts, weights, device)


def _make(losses, train: TrainConfig, counts, weights, device) -> Loss:
    """Return the loss of `train.loss`; raises InputError where the task has none of that name."""
    if train.loss not in losses:
        raise InputError(
            f"train.loss must be {' or '.join(losses)} with this data.task, found '{train.loss}'"
        )
    weights = None if weights is None else weights.to(device)
    return losses[train.loss](LossSettings(counts, weights, device))
