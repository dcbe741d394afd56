"""What the answers of a model are worth, row by row; metrics are made of it."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Scores:
    """Labelled rows and what a model says of them. All arrays are (num_rows, ...), None where a task has no
    such thing.

    `labels` and `predicted` are as the task has them, `confidence` is how sure the prediction is, `brier` the
    sum over classes of (probability - truth) squared, `num_wrong` how many labels are missing or too many,
    `error` how far a number is off; of two classes, `rare_chance` is the probability of the rarer one.
    `thresholds` (num_labels,) have decided; `figures` are for report.json.
    """

    labels: np.ndarray
    predicted: np.ndarray
    correct: np.ndarray
    loss: np.ndarray
    confidence: np.ndarray | None = None
    brier: np.ndarray | None = None
    num_wrong: np.ndarray | None = None
    error: np.ndarray | None = None
    rare_chance: np.ndarray | None = None
    thresholds: np.ndarray | None = None
    figures: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)
