"""Classification with one label a row: its loss, and the weights of the classes in it."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from app.data.dataset import Dataset
from app.errors import InputError


class RowLoss:
    """The summed loss of a micro-batch: cross entropy with label smoothing and class weights."""

    def __init__(self, class_weights: torch.Tensor | None, label_smoothing: float) -> None:
        self.class_weights = class_weights
        self.label_smoothing = label_smoothing

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of logits (num_rows, num_labels) and labels (num_rows,)."""
        return cross_entropy(logits, labels, self.class_weights, reduction="sum", label_smoothing=self.label_smoothing)


def class_weights(setting: str | list[float], dataset: Dataset) -> torch.Tensor | None:
    """Return the factor on the loss of each class, (num_labels,) float32, or None if all are equal.

    Raises InputError unless the weights are finite numbers from 0, one for each class, and not all 0.
    """
    names = dataset.label_names
    if setting == "none":
        return None
    if setting == "balanced":
        counts = np.bincount(dataset.splits["train"].labels, minlength=len(names))
        return torch.tensor(counts.sum() / (len(names) * counts), dtype=torch.float32)
    if len(setting) != len(names) or min(setting) < 0:
        raise InputError(
            f"train.class_weights must be {len(names)} numbers from 0, one for each of {', '.join(names)}; found {setting}"
        )
    weights = torch.tensor(setting, dtype=torch.float32)
    if not weights.isfinite().all() or not weights.any():
        raise InputError(
            "train.class_weights must be finite numbers in single precision, at least one of them above 0; "
            f"found {setting}; a weight of 1 counts a class as it is, 0 ignores it"
        )
    return weights
