"""Texts that are unlike all classes of the training: none of these.

The score is the Mahalanobis distance of the vector of a text to the nearest mean of a class, with one
covariance for all classes (Lee and others 2018, https://arxiv.org/abs/1807.03888). It is compared with the
scores of dev rows, so that a stated share of false alarms holds whatever the scores are.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.rows import Row
from ..errors import InputError
from ..outcomes.outcome import FITTED_ON
from .run_vectors import RunVectors

# Training rows of which the covariance is made
MAX_ROWS = 20_000


class Rejection:
    """Says how usual rows are among those that the classes are of, and rejects the share `rate` of these.

    `usual` is the share of dev rows that are at least as far from all classes, from 0 to 1: at most `rate` is
    rejected. Raises InputError without dev rows, with too few of them for `rate`, and for a run whose rows
    have not one label each.
    """

    def __init__(self, vectors: RunVectors, rate: float) -> None:
        splits, self.vectors, self.rate = vectors.dataset.splits, vectors, rate
        labels = np.asarray(splits["train"].labels)
        if vectors.form.has_several or not vectors.form.has_classes:
            raise InputError(
                "--reject is for runs of one label a row, because it compares a text with those of each "
                "class; leave it out"
            )
        needed = math.ceil(1 / rate - 1 - 1e-9)
        num_dev = len(splits[FITTED_ON]) if FITTED_ON in splits else 0
        if num_dev < needed:
            raise InputError(
                f"--reject {rate:g} needs {needed:,} dev rows of the run, found {num_dev:,}; set a larger "
                "share, or train with more of them"
            )
        known = vectors.of_split(splits["train"])
        places = np.linspace(0, len(known) - 1, min(len(known), MAX_ROWS)).astype(int)
        self._fit(np.asarray(known[places]), labels[places])
        self.dev = np.sort(self.distances(vectors.of_split(splits[FITTED_ON])))
        self.sample: dict[str, Any] = {"usual": 0.5, "rejected": "no"}

    def _fit(self, known: np.ndarray, labels: np.ndarray) -> None:
        from sklearn.covariance import LedoitWolf

        classes, of_row = np.unique(labels, return_inverse=True)
        means = np.stack([known[of_row == at].mean(axis=0) for at in range(len(classes))])
        precision = LedoitWolf(assume_centered=True).fit(known - means[of_row]).precision_
        # With it, the distance is the usual one
        self.root = np.linalg.cholesky(precision)
        self.means = means @ self.root

    def distances(self, vectors: np.ndarray) -> np.ndarray:
        """Return the distance of each of the vectors, (num_rows, size), to the nearest class, (num_rows,)."""
        from scipy.spatial.distance import cdist

        return cdist(vectors @ self.root, self.means).min(axis=1)

    def values(self, rows: Sequence[Row], logits: np.ndarray, answers: Sequence) -> list[dict[str, Any]]:
        """Return `usual` and `rejected`, yes or no, of each row."""
        below = np.searchsorted(self.dev, self.distances(self.vectors.of(rows)), side="left")
        usual = (1 + len(self.dev) - below) / (1 + len(self.dev))
        return [
            {"usual": round(float(share), 6), "rejected": "yes" if share <= self.rate + 1e-12 else "no"}
            for share in usual
        ]
