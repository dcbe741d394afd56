"""How far the figures of label sets would move with another sample of rows, and how far two models differ: 95
% bootstrap intervals."""

from __future__ import annotations

import numpy as np

from ..measures.intervals import Interval, percentiles, resampled_counts

FIGURES = ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy")


class SetFigures:
    """The figures of label sets that were drawn again; `labels` and `predicted` are 0 and 1, (num_cells,
    num_labels).

    Rows that are alike are one cell, so that drawing rows is drawing how often each cell is there.
    """

    def __init__(self, labels: np.ndarray, predicted: np.ndarray) -> None:
        from scipy.sparse import csr_array

        right = (labels & predicted).astype(np.float64)
        both = labels.astype(np.float64) + predicted
        sizes = both.sum(axis=1)
        self.right, self.both = csr_array(right), csr_array(both)
        self.row_f1 = np.where(sizes > 0, 2 * right.sum(axis=1) / np.maximum(sizes, 1), 1.0)
        self.is_right = (labels == predicted).all(axis=1).astype(np.float64)

    def __call__(self, drawn: np.ndarray) -> np.ndarray:
        """Return `FIGURES`, (4, num_resamples), of counts (num_resamples, num_cells)."""
        # (num_resamples, num_labels)
        found, sizes = drawn @ self.right, drawn @ self.both
        rows = drawn.sum(axis=1)
        micro = 2 * found.sum(axis=1) / np.maximum(sizes.sum(axis=1), 1)
        macro = (2 * found / np.maximum(sizes, 1)).mean(axis=1)
        return np.stack([micro, macro, drawn @ self.row_f1 / rows, drawn @ self.is_right / rows])


def alike(*sets: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the rows of each array of `sets`, (num_rows, num_labels) 0 and 1, that differ, and how often
    each of them is there."""
    bits = np.packbits(np.concatenate([np.asarray(one, dtype=bool) for one in sets], axis=1), axis=1)
    _, first, counts = np.unique(bits, axis=0, return_index=True, return_counts=True)
    return [np.asarray(one, dtype=bool)[first] for one in sets], counts


def label_set_intervals(labels: np.ndarray, predicted: np.ndarray, seed: int = 0) -> dict[str, Interval]:
    """Return the 95 % intervals of `FIGURES` for label sets, both (num_rows, num_labels) 0 and 1.

    Macro F1 of a resample lacks rows of rare labels and so is lower on average; its percentiles are moved by
    that difference.
    """
    cells, counts = alike(labels, predicted)
    figures = SetFigures(*cells)
    generator = np.random.default_rng(seed)
    resampled = np.concatenate([figures(drawn) for drawn in resampled_counts(counts, generator)], axis=1)
    macro = FIGURES.index("macro_f1")
    moved = resampled[macro] + figures(counts[None])[macro, 0] - resampled[macro].mean()
    resampled[macro] = np.clip(moved, 0, 1)
    return {name: percentiles(resampled[at]) for at, name in enumerate(FIGURES)}


def label_set_differences(
    labels: np.ndarray, one: np.ndarray, other: np.ndarray, generator: np.random.Generator
) -> dict[str, tuple[float, Interval]]:
    """Return the differences of `FIGURES`, those of `other` less those of `one`, with their 95 % paired
    bootstrap intervals.

    All arrays are (num_rows, num_labels) 0 and 1. Both are drawn together, so what they share cancels.
    """
    (truth, *predicted), counts = alike(labels, one, other)
    first, second = (SetFigures(truth, sets) for sets in predicted)
    drawn = resampled_counts(counts, generator)
    resampled = np.concatenate([second(some) - first(some) for some in drawn], axis=1)
    measured = (second(counts[None]) - first(counts[None]))[:, 0]
    return {name: (float(measured[at]), percentiles(resampled[at])) for at, name in enumerate(FIGURES)}
