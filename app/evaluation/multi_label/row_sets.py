"""Labels and logits -> which labels each row has, which it was given, and how wrong that is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .decisions import LabelRule, sigmoid
from .intervals import label_set_intervals

NAMES = {
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "samples_f1": "samples F1",
    "subset_accuracy": "subset accuracy",
}
OF_BASELINES = ("micro_f1", "macro_f1")


@dataclass(frozen=True)
class RowSets:
    """The true and predicted labels of rows, both (num_rows, num_labels) bool, and their `logits` of the same
    shape; `rule` is what decided them, None where several did."""

    labels: np.ndarray
    predicted: np.ndarray
    logits: np.ndarray
    rule: LabelRule | None = None

    # What a row is whose prediction is right
    right_rows = "rows with all labels right"

    @property
    def certainty(self) -> tuple[str, np.ndarray]:
        """What a file of compared rows has beside a prediction: a name, and a number for each row."""
        return "wrong_labels", self.num_wrong

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
        """Return the positions of at most `count` wrong rows, those with the most wrong labels first, then
        the largest loss."""
        order = np.lexsort((-self.loss, -self.num_wrong))[:count]
        return order[self.num_wrong[order] > 0]

    def __len__(self) -> int:
        return len(self.labels)


def decide_rows(labels: np.ndarray, logits: np.ndarray, rule: LabelRule) -> RowSets:
    """Return what a rule makes of logits, (num_rows, num_labels), beside the labels, 0 and 1 of the same
    shape."""
    return RowSets(np.asarray(labels, dtype=bool), rule.decide(sigmoid(logits)), logits, rule)


def summarize_sets(rows: RowSets) -> dict:
    """Return `intervals`, 95 %, by the name of the figure."""
    found = label_set_intervals(rows.labels, rows.predicted)
    return {"intervals": {name: list(ends) for name, ends in found.items()}}


def list_of(chosen: np.ndarray, label_names: list[str]) -> list[str]:
    """Return the names of the labels that a row has; `chosen` (num_labels,) is true or 1 for them."""
    return [label_names[label] for label in np.flatnonzero(chosen)]
