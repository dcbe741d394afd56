"""Rows that are drawn with replacement, and the metrics that follow from their labels and answers alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..tasks.task import Task

TINY = 1e-12  # what rounding may leave of numbers that are equal


@dataclass(frozen=True)
class Matches:
    """Where answers and labels are the same: labels that are `right`, that is both true and predicted, the
    `true` labels, and the `predicted` ones. Each is an array or a sparse matrix of counts, all of one shape.
    """

    right: Any
    true: Any
    predicted: Any

    def sums_of_rows(self) -> Matches:
        """Return how many labels each row has, (num_rows,), for matrices (num_rows, num_labels)."""
        return Matches(self.right.sum(axis=1), self.true.sum(axis=1), self.predicted.sum(axis=1))

    def weighted(self, counts: np.ndarray) -> Matches:
        """Return the sums over rows; each row counts as often as `counts`, (..., num_rows), says."""
        return Matches(counts @ self.right, counts @ self.true, counts @ self.predicted)

    def columns(self, columns: np.ndarray | list[int]) -> Matches:
        """Return some of the columns only."""
        return Matches(self.right[..., columns], self.true[..., columns], self.predicted[..., columns])

    # These three are 0 where there is nothing to divide by

    def precision(self) -> np.ndarray:
        return self.right / np.maximum(self.predicted, 1)

    def recall(self) -> np.ndarray:
        return self.right / np.maximum(self.true, 1)

    def f1(self) -> np.ndarray:
        return 2 * self.right / np.maximum(self.true + self.predicted, 1)


class AnswerPairs:
    """The different pairs of a label and an answer that rows have: `labels` and `predicted`, (num_distinct,
    ...), as the task has them. `rare_label` is the rarer of two classes. A float is different in most rows.
    """

    def __init__(
        self, task: Task, labels: np.ndarray, predicted: np.ndarray, rare_label: int | None = None
    ) -> None:
        self.labels = labels
        self.predicted = predicted
        self.rare_label = rare_label
        self.num_labels = len(task.label_names)
        self.tree = task.tree

    @cached_property
    def is_right(self) -> np.ndarray:
        """Whether all labels of an answer are right, (num_distinct,)."""
        is_equal = self.labels == self.predicted
        return is_equal.reshape(len(self.labels), -1).all(axis=1)

    @cached_property
    def distance(self) -> np.ndarray:
        """How far each answer is from its label, (num_distinct,): a number, or a class id."""
        return np.abs(self.predicted - self.labels)

    @cached_property
    def label_matches(self) -> Matches:
        """Sparse matrices of 0 and 1, (num_distinct, num_labels)."""
        true = one_hot(self.labels, self.num_labels)
        predicted = one_hot(self.predicted, self.num_labels)
        return Matches(true.multiply(predicted).tocsr(), true, predicted)

    @cached_property
    def node_matches(self) -> Matches:
        """Sparse matrices of 0 and 1, (num_distinct, num_nodes): labels in a hierarchy, and what is above."""
        true = self.tree.nodes_of(self.labels)
        predicted = self.tree.nodes_of(self.predicted)
        return Matches(true.multiply(predicted).tocsr(), true, predicted)


class DrawnRows:
    """Many draws of rows with replacement, as counts of their `pairs`.

    `counts`, (num_resamples, num_distinct), says how often each draw has each pair, so that a million rows
    cost no more than the pairs that differ. Each metric is (num_resamples,).
    """

    def __init__(self, pairs: AnswerPairs, counts: np.ndarray) -> None:
        self.pairs = pairs
        self.counts = counts

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over the rows of each draw; `values` (num_distinct,)."""
        return self.counts @ values.astype(np.float64) / self.counts.sum(axis=1)

    def accuracy(self) -> np.ndarray:
        return self.mean(self.pairs.is_right)

    def label_f1(self) -> np.ndarray:
        """Return the F1 of each label, (num_resamples, num_labels)."""
        return self.pairs.label_matches.weighted(self.counts).f1()

    def macro_f1(self) -> np.ndarray:
        return self.label_f1().mean(axis=1)

    def micro_f1(self) -> np.ndarray:
        return self.pairs.label_matches.sums_of_rows().weighted(self.counts).f1()

    def weighted_f1(self) -> np.ndarray:
        support = self.counts @ self.pairs.label_matches.true
        return (self.label_f1() * support).sum(axis=1) / np.maximum(support.sum(axis=1), 1)

    def samples_f1(self) -> np.ndarray:
        """The mean of the F1 of each row, which is 1 for a row without labels that gets none."""
        matches = self.pairs.label_matches.sums_of_rows()
        has_labels = matches.true + matches.predicted > 0
        return self.mean(np.where(has_labels, matches.f1(), 1.0))

    def rare_f1(self) -> np.ndarray:
        """The F1 of the rarer of two classes."""
        return self.label_f1()[:, self.pairs.rare_label]

    def hamming_loss(self) -> np.ndarray:
        return self.mean((self.pairs.labels != self.pairs.predicted).mean(axis=1))

    def accuracy_at_level(self, level: int) -> np.ndarray:
        """The share of rows that are right down to a level (1: the highest)."""
        upper_nodes = np.flatnonzero(self.pairs.tree.levels < level)
        matches = self.pairs.node_matches.columns(upper_nodes).sums_of_rows()
        return self.mean((matches.right == matches.true) & (matches.right == matches.predicted))

    # These three are over all nodes: Kiritchenko et al. 2006, https://doi.org/10.1007/11766247_34

    def hierarchical_f1(self) -> np.ndarray:
        return self.pairs.node_matches.sums_of_rows().weighted(self.counts).f1()

    def hierarchical_precision(self) -> np.ndarray:
        return self.pairs.node_matches.sums_of_rows().weighted(self.counts).precision()

    def hierarchical_recall(self) -> np.ndarray:
        return self.pairs.node_matches.sums_of_rows().weighted(self.counts).recall()

    def mean_absolute_error(self) -> np.ndarray:
        return self.mean(self.pairs.distance)

    def root_mean_squared_error(self) -> np.ndarray:
        return self.mean(self.pairs.distance**2) ** 0.5

    def within_one(self) -> np.ndarray:
        """The share of ordered labels that are at most one label off."""
        return self.mean(self.pairs.distance <= 1)

    def macro_mae(self) -> np.ndarray:
        """The mean number of labels that predictions are off, as the mean over the true labels."""
        true = self.pairs.label_matches.true
        support = self.counts @ true
        sums = self.counts @ true.multiply(self.pairs.distance[:, None])
        means = sums / np.maximum(support, 1)
        return means.sum(axis=1) / (support > 0).sum(axis=1)

    def quadratic_kappa(self) -> np.ndarray:
        """The quadratic weighted kappa; 0 where all labels and predictions are one label."""
        mean_of_labels = self.mean(self.pairs.labels)
        mean_of_predicted = self.mean(self.pairs.predicted)
        mean_of_squares = self.mean(self.pairs.labels**2) + self.mean(self.pairs.predicted**2)
        by_chance = mean_of_squares - 2 * mean_of_labels * mean_of_predicted
        is_constant = by_chance < TINY
        kappas = 1 - self.mean(self.pairs.distance**2) / np.where(is_constant, 1.0, by_chance)
        # Where all predictions are one label, rounding may leave a tiny negative number, shown as -0.0000
        return np.where(is_constant | (np.abs(kappas) < TINY), 0.0, kappas)

    def pearson(self) -> np.ndarray:
        """Pearson's correlation; 0 where the labels or the predictions are constant."""
        return self._correlation(self.pairs.labels, self.pairs.predicted)

    def spearman(self) -> np.ndarray:
        """Spearman's correlation, which is Pearson's of the ranks."""
        return self._correlation(self._ranks(self.pairs.labels), self._ranks(self.pairs.predicted))

    def _ranks(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rank of each number in each draw, (num_resamples, num_distinct)."""
        values, positions = np.unique(numbers, return_inverse=True)
        # How many rows of each draw have each of the values, from the smallest value on
        num_rows = self.counts @ one_hot(positions, len(values))
        last_ranks = num_rows.cumsum(axis=1)
        # Equal numbers share the mean of their ranks
        ranks = last_ranks - (num_rows - 1) / 2
        return ranks[:, positions]

    def _correlation(self, labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        centred_labels, spread_of_labels = self._standardised(labels)
        centred_predicted, spread_of_predicted = self._standardised(predicted)
        covariance = np.average(centred_labels * centred_predicted, axis=1, weights=self.counts)
        # 0 is added because rounding may leave -0.0
        return covariance / spread_of_labels / spread_of_predicted + 0.0

    def _standardised(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers less their mean, (num_resamples, num_distinct), and their standard deviation,
        (num_resamples,), which is infinite where they are constant. `numbers` has either shape."""
        numbers = np.broadcast_to(numbers, self.counts.shape)
        means = np.average(numbers, axis=1, weights=self.counts, keepdims=True)
        centred = numbers - means
        spread = np.average(centred**2, axis=1, weights=self.counts) ** 0.5
        size = np.average(np.abs(numbers), axis=1, weights=self.counts)
        return centred, np.where(spread > TINY * size, spread, np.inf)


def rarer_label(task: Task, labels: np.ndarray) -> int | None:
    """Return the rarer of two classes: that of the training, or where it is not known, of `labels`. None for
    other tasks."""
    if not task.has_rare_class:
        return None
    if task.rare_class is not None:
        return task.rare_class
    return int(np.bincount(labels, minlength=2).argmin())


def one_hot(labels: np.ndarray, num_labels: int) -> Any:
    """Return labels as a sparse matrix of 0 and 1, (num_rows, num_labels); `labels` are class ids,
    (num_rows,), or have that shape already."""
    from scipy.sparse import csr_array, eye_array

    if labels.ndim == 2:
        return csr_array(labels.astype(np.float64))
    return eye_array(num_labels, format="csr")[labels]


def distinct_rows(*arrays: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the different rows of arrays (num_rows, ...) side by side, and how often each is there,
    (num_distinct,) int64. Arrays of floats are returned whole, because almost all of their rows differ."""
    if arrays[0].dtype.kind == "f":
        return list(arrays), np.ones(len(arrays[0]), np.int64)
    table = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
    if table.dtype == bool:
        table = np.packbits(table, axis=1)
    _values, first_rows, counts = np.unique(table, axis=0, return_index=True, return_counts=True)
    return [array[first_rows] for array in arrays], counts
