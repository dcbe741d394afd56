"""Rows with labels, counted. Drawing rows with replacement is drawing how often each distinct row is chosen,
so a million rows cost no more than those with different labels and predictions."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Self

import numpy as np


class CountedRows:
    """Distinct rows, of which resamples are drawn: `counts` (num_resamples, num_distinct) is how often each
    has each row, `num_rows` (num_resamples,) how many rows it has. Metrics are (num_resamples,)."""

    counts: np.ndarray
    num_rows: np.ndarray

    def draw(self, counts: np.ndarray) -> Self:
        """Return the same rows with other counts."""
        drawn = copy(self)
        drawn.counts, drawn.num_rows = counts, counts.sum(axis=1)
        return drawn


class LabelCounts(CountedRows):
    """Rows with labels. `rows_right` (num_distinct, num_labels), sparse: 1 for a label that a row has and is
    predicted with. `rows_both`, of the same shape: how often a label is true or predicted, 0 to 2."""

    def __init__(self, rows_right, rows_both, is_right: np.ndarray) -> None:
        self.rows_right = rows_right
        self.rows_both = rows_both
        self.is_right = is_right.astype(np.float64)

    @classmethod
    def of_classes(cls, labels: np.ndarray, predicted: np.ndarray, num_labels: int) -> Self:
        """Return the counts of class ids, both (num_distinct,)."""
        from scipy.sparse import csr_array

        rows, ones, shape = np.arange(len(labels)), np.ones(len(labels)), (len(labels), num_labels)
        is_right = labels == predicted
        both = csr_array((ones, (rows, labels)), shape) + csr_array((ones, (rows, predicted)), shape)
        return cls(csr_array((is_right * 1.0, (rows, labels)), shape), both, is_right)

    @classmethod
    def of_label_lists(cls, labels: np.ndarray, predicted: np.ndarray) -> Self:
        """Return the counts of several labels a row, both (num_distinct, num_labels) bool."""
        from scipy.sparse import csr_array

        right = csr_array((labels & predicted).astype(np.float64))
        both = csr_array(labels.astype(np.float64) + predicted)
        return cls(right, both, (labels == predicted).all(axis=1))

    @cached_property
    def right(self) -> np.ndarray:
        """How often each label is right, (num_resamples, num_labels)."""
        return self.counts @ self.rows_right

    @cached_property
    def both(self) -> np.ndarray:
        """How often each label is true or predicted, (num_resamples, num_labels)."""
        return self.counts @ self.rows_both

    @property
    def label_f1(self) -> np.ndarray:
        """The F1 of each label, (num_resamples, num_labels); 0 for one that is neither true nor predicted."""
        return 2 * self.right / np.maximum(self.both, 1)

    @property
    def micro_f1(self) -> np.ndarray:
        """The F1 over all labels together."""
        return 2 * self.right.sum(axis=1) / np.maximum(self.both.sum(axis=1), 1)

    @property
    def row_f1(self) -> np.ndarray:
        """The mean F1 of the rows, of each over its labels; 1 for a row without labels that gets none."""
        right, both = (np.asarray(of.sum(axis=1)).ravel() for of in (self.rows_right, self.rows_both))
        return self.counts @ np.where(both > 0, 2 * right / np.maximum(both, 1), 1.0) / self.num_rows

    @property
    def accuracy(self) -> np.ndarray:
        """The share of rows with all labels right."""
        return self.counts @ self.is_right / self.num_rows


def distinct_classes(
    num_labels: int, labels: np.ndarray, *predicted: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the rows of arrays of class ids, each (num_rows,), that differ, and how often each is there."""
    codes = np.asarray(labels, np.int64)
    for answers in predicted:
        # Numbered again each time: the product of many sizes does not fit into 64 bits
        codes = np.unique(codes * num_labels + answers, return_inverse=True)[1]
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return [np.asarray(array)[first] for array in (labels, *predicted)], counts


def distinct_label_lists(*arrays: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the rows of 0/1 arrays, (num_rows, num_labels), that differ, and how often each is there."""
    bits = np.packbits(np.concatenate([np.asarray(array, bool) for array in arrays], axis=1), axis=1)
    _, first, counts = np.unique(bits, axis=0, return_index=True, return_counts=True)
    return [np.asarray(array, bool)[first] for array in arrays], counts
