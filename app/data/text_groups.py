"""The rows of each text: rows with the same text stay together in a split."""

from __future__ import annotations

import numpy as np


def text_groups(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of each text as `first`, `order` and `starts`.

    `first` (num_texts,) is the first row of each text; text g has the rows `order[starts[g]:starts[g + 1]]`.
    """
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    return first, order, np.r_[np.flatnonzero(np.diff(group[order], prepend=-1)), len(order)]


def rows_of_groups(groups: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the ids of all rows in `groups`; group g has the rows `order[starts[g]:starts[g + 1]]`."""
    lengths = starts[groups + 1] - starts[groups]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return order[np.repeat(starts[groups], lengths) + within].astype(np.int64)
