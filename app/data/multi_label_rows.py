"""The lists of labels of multi-label rows: from their text in a table to a matrix of 0 and 1, and counts."""

from __future__ import annotations

import numpy as np

from .label_cells import decode_labels
from .labels import resolve_label, sort_labels


def names_in_lists(sets: list[str]) -> list[str]:
    """Return all labels in the order of their ids."""
    return sort_labels(list({label for text in sets for label in decode_labels(text)}))


def label_matrix(sets: list[str], names: list[str]) -> np.ndarray:
    """Return which labels each set has, (num_sets, num_labels) uint8."""
    matrix = np.zeros((len(sets), len(names)), dtype=np.uint8)
    ids: dict[str, int | None] = {}
    for row, text in enumerate(sets):
        for label in decode_labels(text):
            if label not in ids:
                ids[label] = resolve_label(label, names)
            matrix[row, ids[label]] = 1
    return matrix


def label_list_ids(labels: np.ndarray) -> np.ndarray:
    """Return a number for each row, (num_rows,) int64, the same for rows with the same labels.

    `labels` are class ids (num_rows,), which are their own numbers, or (num_rows, num_labels) 0 and 1.
    """
    if labels.ndim == 1:
        return labels
    return np.unique(np.packbits(labels, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def label_counts(labels: np.ndarray, num_labels: int) -> np.ndarray:
    """Return the rows of each label, (num_labels,) int64; `labels` as `label_list_ids` takes them."""
    if labels.ndim == 1:
        return np.bincount(labels, minlength=num_labels)
    return labels.sum(axis=0, dtype=np.int64)


def rows_with(labels: np.ndarray, label: int) -> np.ndarray:
    """Return the positions of the rows that have a label; `labels` as `label_list_ids` takes them."""
    return np.flatnonzero(labels == label if labels.ndim == 1 else labels[:, label])
