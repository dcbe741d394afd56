"""Rows with labels, counted. Drawing rows with replacement is drawing how often each distinct row is chosen,
so a million rows cost no more than those with different labels and predictions."""

from __future__ import annotations

from functools import cached_property

import numpy as np


class LabelCounts:
    """Distinct rows: for each, which labels it has, which of them are predicted, and whether it is right.

    `right` (num_distinct, num_labels), sparse: 1 for a label that the row has and that is predicted. `both`,
    of the same shape: how often the label is among true and predicted labels, 0 to 2.
    """

    def __init__(self, right, both, is_right: np.ndarray) -> None:
        self.right = right
        self.both = both
        self.is_right = is_right.astype(np.float64)

    @classmethod
    def of_classes(cls, labels: np.ndarray, predicted: np.ndarray, num_labels: int) -> LabelCounts:
        """Return the counts of class ids, both (num_distinct,)."""
        from scipy.sparse import csr_array

        rows, ones, shape = np.arange(len(labels)), np.ones(len(labels)), (len(labels), num_labels)
        is_right = labels == predicted
        both = csr_array((ones, (rows, labels)), shape) + csr_array((ones, (rows, predicted)), shape)
        return cls(csr_array((is_right * 1.0, (rows, labels)), shape), both, is_right)

    @classmethod
    def of_label_lists(cls, labels: np.ndarray, predicted: np.ndarray) -> LabelCounts:
        """Return the counts of several labels a row, both (num_distinct, num_labels) bool."""
        from scipy.sparse import csr_array

        right = csr_array((labels & predicted).astype(np.float64))
        both = csr_array(labels.astype(np.float64) + predicted)
        return cls(right, both, (labels == predicted).all(axis=1))

    @cached_property
    def row_f1(self) -> np.ndarray:
        """The F1 of each row over its labels, (num_distinct,); 1 for a row without labels that gets none."""
        right, both = (np.asarray(counts.sum(axis=1)).ravel() for counts in (self.right, self.both))
        return np.where(both > 0, 2 * right / np.maximum(both, 1), 1.0)

    def draw(self, counts: np.ndarray) -> DrawnRows:
        """Return resamples, given how often each has each distinct row, (num_resamples, num_distinct)."""
        return DrawnRows(self, counts)


class DrawnRows:
    """Resamples of rows; every property is (num_resamples,) but `label_f1`."""

    def __init__(self, rows: LabelCounts, counts: np.ndarray) -> None:
        self.rows = rows
        self.counts = counts
        self.num_rows = counts.sum(axis=1)

    @cached_property
    def right(self) -> np.ndarray:
        """How often each label is right, (num_resamples, num_labels)."""
        return self.counts @ self.rows.right

    @cached_property
    def both(self) -> np.ndarray:
        """How often each label is true or predicted, (num_resamples, num_labels)."""
        return self.counts @ self.rows.both

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
        """The mean F1 of the rows."""
        return self.counts @ self.rows.row_f1 / self.num_rows

    @property
    def accuracy(self) -> np.ndarray:
        """The share of rows with all labels right."""
        return self.counts @ self.rows.is_right / self.num_rows


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
