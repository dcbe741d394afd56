"""The scores of rows with several labels: arrays of one number a row."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .thresholds import LabelRule


@dataclass(frozen=True)
class LabelListScores:
    """The true and predicted labels of rows, both (num_rows, num_labels) bool, and their `logits` of the same
    shape; `rule` is what decided them, None where several did."""

    labels: np.ndarray
    predicted: np.ndarray
    logits: np.ndarray
    rule: LabelRule | None = None

    # What a row is whose prediction is right
    right_rows = "rows with all labels right"

    @cached_property
    def num_wrong(self) -> np.ndarray:
        """How many labels of each row are missing or too many, (num_rows,)."""
        return (self.predicted != self.labels).sum(axis=1)

    @property
    def correct(self) -> np.ndarray:
        """Whether all labels of each row are right, (num_rows,) bool."""
        return self.num_wrong == 0

    @cached_property
    def loss(self) -> np.ndarray:
        """The mean binary cross entropy of each row over the labels, (num_rows,) float64."""
        logits = np.asarray(self.logits, dtype=np.float64)
        return (np.logaddexp(0, logits) - self.labels * logits).mean(axis=1)

    def most_wrong(self, count: int) -> np.ndarray:
        """Return the positions of `count` wrong rows: most wrong labels first, then the largest loss."""
        order = np.lexsort((-self.loss, -self.num_wrong))[:count]
        return order[self.num_wrong[order] > 0]

    def __len__(self) -> int:
        return len(self.labels)
