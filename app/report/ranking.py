"""How well probabilities rank the rows of the rarer of two classes above those of the other class.

Rows that share a place in the ranking are one cell. Metrics follow from the rows of each class that there are
down to each cell, from the most probable one on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_CELLS = 500


@dataclass(frozen=True)
class RankedRows:
    """Rows down to each cell, for many draws of rows: both arrays are (num_resamples, num_cells + 1).

    The first cell has no row. `rare` counts the rows of the rarer class, and `both` those of both classes.
    """

    rare: np.ndarray
    both: np.ndarray


def class_counts(is_rare: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return how many rows of the other class, then of the rarer one, each cell has, (num_counts,) int64;
    `cells` (num_rows,) are numbers, and the most probable rows have the smallest one."""
    _values, positions = np.unique(cells, return_inverse=True)
    return np.bincount(positions * 2 + is_rare)


def ranked_rows(counts: np.ndarray) -> RankedRows:
    """Return the rows down to each cell; `counts` (num_resamples, num_counts) are `class_counts`."""
    # Two counts of a cell without rows are put first. The last cell may lack its count of the rarer class,
    # which is 0 then.
    num_missing = counts.shape[1] % 2
    both_classes = np.pad(counts, ((0, 0), (2, num_missing)))
    rare = both_classes[:, 1::2].cumsum(axis=1)
    others = both_classes[:, ::2].cumsum(axis=1)
    return RankedRows(rare, rare + others)


def average_precision(rows: RankedRows, _precision: float) -> np.ndarray:
    precisions = rows.rare / np.maximum(rows.both, 1)
    rare_of_cell = np.diff(rows.rare, prepend=0)
    return (rare_of_cell * precisions).sum(axis=1) / np.maximum(rows.rare[:, -1], 1)


def roc_auc(rows: RankedRows, _precision: float) -> np.ndarray:
    """How often a row of the rarer class is more probable than one of the other; 0.5 without a pair."""
    others = rows.both - rows.rare
    num_pairs = rows.rare[:, -1] * others[:, -1]
    area = np.trapezoid(rows.rare, others, axis=1)
    return np.where(num_pairs > 0, area / np.maximum(num_pairs, 1), 0.5)


def recall_at_precision(rows: RankedRows, precision: float) -> np.ndarray:
    """The largest share of the rarer class that can be found with this precision."""
    is_precise = rows.rare >= precision * rows.both
    num_found = np.where(is_precise, rows.rare, 0).max(axis=1)
    return num_found / np.maximum(rows.rare[:, -1], 1)


def rank_cells(is_rare: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the cell of each row, (num_rows,) int64; the more probable a row is, the smaller is its number.

    Up to `MAX_CELLS` cells lose nothing: between two rows of the rarer class (`is_rare`) only the number of
    other rows matters. More of them are merged with their neighbours, by rank and not by probability, so that
    no cell has many rows of either class, however close together the `probabilities` of rows are.
    """
    _values, ranks = np.unique(-probabilities, return_inverse=True)
    num_rare = np.bincount(ranks, weights=is_rare)
    begins_cell = num_rare > 0
    begins_cell[1:] |= num_rare[:-1] > 0
    cells = np.cumsum(begins_cell)[ranks]
    if len(np.unique(cells)) <= MAX_CELLS:
        return cells
    is_other = ~is_rare
    share = np.bincount(cells, weights=is_rare) / max(is_rare.sum(), 1)
    share += np.bincount(cells, weights=is_other) / max(is_other.sum(), 1)
    share_before = np.cumsum(share) - share
    merged_cells = (share_before * (MAX_CELLS / share.sum())).astype(np.int64)
    return merged_cells[cells]
