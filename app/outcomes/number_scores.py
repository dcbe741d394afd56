"""Rows with one number, true and predicted: their errors, and the metrics of rows that are drawn again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .label_counts import CountedRows

# Of standard deviations of the numbers: a prediction that is not further off counts as right
NEAR = 0.5


@dataclass(frozen=True)
class NumberScores:
    """True and predicted numbers, both (num_rows,) float64; errors are measured in `scale`."""

    labels: np.ndarray
    predicted: np.ndarray
    scale: float

    # What a row is whose prediction is right
    right_rows: ClassVar[str] = "rows not more than half a standard deviation off"

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def error(self) -> np.ndarray:
        """How far each prediction is off, (num_rows,)."""
        return np.abs(self.predicted - self.labels)

    @property
    def correct(self) -> np.ndarray:
        """Whether each prediction is at most half a standard deviation off, (num_rows,) bool."""
        return self.error <= NEAR * self.scale

    @property
    def loss(self) -> np.ndarray:
        """The squared error of each row in standard deviations, (num_rows,)."""
        return (self.error / self.scale) ** 2


class Numbers(CountedRows):
    """True and predicted numbers of rows."""

    def __init__(self, labels: np.ndarray, predicted: np.ndarray) -> None:
        self.error = np.abs(predicted - labels)
        # Around 0, so that products of large numbers lose nothing
        self.values = [np.asarray(of, np.float64) - np.mean(of) for of in (labels, predicted)]

    @property
    def mae(self) -> np.ndarray:
        """The mean absolute error."""
        return self.counts @ self.error / self.num_rows

    @property
    def rmse(self) -> np.ndarray:
        """The root of the mean squared error."""
        return np.sqrt(self.counts @ self.error**2 / self.num_rows)

    @property
    def pearson(self) -> np.ndarray:
        """The correlation; 0 where one of the two is the same in all rows."""
        return self._correlation(*self.values)

    @property
    def spearman(self) -> np.ndarray:
        """The correlation of the ranks; equal numbers share the mean of their ranks."""
        return self._correlation(*map(self._ranks, self.values))

    def _ranks(self, values: np.ndarray) -> np.ndarray:
        """Return the rank of each row in each resample, from -1/2 to 1/2, (num_resamples, num_rows)."""
        _, group = np.unique(values, return_inverse=True)
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        sizes = np.add.reduceat(self.counts[:, order], starts, axis=1)
        ranks = np.cumsum(sizes, axis=1) - sizes / 2
        return (ranks / self.num_rows[:, None] - 0.5)[:, group]

    def _correlation(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the correlation of values, each (num_rows,) or (num_resamples, num_rows)."""

        def mean(values: np.ndarray) -> np.ndarray:
            return (
                np.einsum("ij,ij->i", self.counts, np.broadcast_to(values, self.counts.shape)) / self.num_rows
            )

        means = mean(one), mean(other)
        spread = (mean(one**2) - means[0] ** 2).clip(0) * (mean(other**2) - means[1] ** 2).clip(0)
        shared = mean(one * other) - means[0] * means[1]
        # What rounding leaves of a constant is no spread
        is_constant = np.sqrt(spread) <= 1e-12 * np.sqrt(np.square(one).max() * np.square(other).max())
        return np.where(is_constant, 0.0, shared / np.sqrt(np.where(is_constant, 1.0, spread))).clip(-1, 1)
