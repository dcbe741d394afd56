"""Classification with one label a row."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy


class RowLoss:
    """The summed loss of a micro-batch: cross entropy with label smoothing and class weights."""

    def __init__(self, class_weights: torch.Tensor | None, label_smoothing: float) -> None:
        self.class_weights = class_weights
        self.label_smoothing = label_smoothing

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of logits (num_rows, num_labels) and labels (num_rows,)."""
        return cross_entropy(logits, labels, self.class_weights, reduction="sum", label_smoothing=self.label_smoothing)
