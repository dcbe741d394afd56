"""How far a figure would move with another sample of rows: 95 % bootstrap intervals.

Drawing rows with replacement is drawing how often each cell of a table is chosen, where the rows of a cell
are alike. So a million rows cost no more than their table: the confusion matrix for accuracy and macro F1;
narrow ranges of values for a mean; bins of confidence, right and wrong, for the calibration error.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .calibration_error import bin_of_rows
from .row_scores import RowScores

LEVEL = 0.95
RESAMPLES = 1000
# Of tables with very many cells
MIN_RESAMPLES = 200
# Cells x resamples
MAX_DRAWS = 20_000_000
# Of them in memory at once
BLOCK_DRAWS = 2_000_000
VALUE_CELLS = 2048
# Cells of confidence in a bin of the calibration error
FINE_BINS = 20

Interval = tuple[float, float]


def score_intervals(scores: RowScores, num_labels: int, seed: int = 0) -> dict[str, Interval]:
    """Return the 95 % intervals of `accuracy`, `macro_f1`, `loss`, `brier` and `ece` of the rows of `scores`.

    They are percentiles of the resampled figures, for `ece` of their distance to the figure: noise only ever
    adds to it.
    """
    generator = np.random.default_rng(seed)
    return {
        **label_intervals(scores.labels, scores.predicted, num_labels, seed),
        "loss": mean_interval(scores.loss, generator),
        "brier": mean_interval(scores.brier, generator),
        "ece": calibration_interval(scores.confidence, scores.correct, generator),
    }


def resampled_counts(counts: np.ndarray, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield blocks, (num_resamples, num_cells), of how often rows of each cell are drawn; `counts`
    (num_cells,) rows of each."""
    total = counts.sum()
    left = int(np.clip(MAX_DRAWS // len(counts), MIN_RESAMPLES, RESAMPLES))
    block = max(1, BLOCK_DRAWS // len(counts))
    while left:
        size = min(block, left)
        yield generator.multinomial(total, counts / total, size)
        left -= size


def percentiles(figures: np.ndarray) -> Interval:
    """Return the percentiles of resampled figures between which 95 % of them are."""
    low, high = np.quantile(figures, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def mean_interval(values: np.ndarray, generator: np.random.Generator) -> Interval:
    """Return the interval of the mean of `values`, (num_rows,)."""
    return percentiles(resampled_means(values, generator))


def resampled_means(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the means of resamples of `values`, (num_rows,); equal values make one resample."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.array([low, low])
    cells = ((values - low) * ((VALUE_CELLS - 1) / (high - low))).astype(np.int64)
    counts = np.bincount(cells, minlength=VALUE_CELLS)
    sums = np.bincount(cells, weights=values, minlength=VALUE_CELLS)
    means, counts = sums[counts > 0] / counts[counts > 0], counts[counts > 0]
    return np.concatenate([drawn @ means for drawn in resampled_counts(counts, generator)]) / len(values)


def calibration_interval(
    confidence: np.ndarray, correct: np.ndarray, generator: np.random.Generator
) -> Interval:
    """Return the interval of the expected calibration error; `confidence` and `correct` are (num_rows,)."""
    bins = bin_of_rows(confidence)
    num_bins = int(bins.max()) + 1
    fine = (
        np.argsort(np.argsort(confidence, kind="stable"), kind="stable")
        * (num_bins * FINE_BINS)
        // len(confidence)
    )
    cells, inverse = np.unique((bins * num_bins * FINE_BINS + fine) * 2 + correct, return_inverse=True)
    counts = np.bincount(inverse)
    # Mean confidence - correct
    gaps = np.bincount(inverse, weights=confidence) / counts - cells % 2
    in_bin = np.zeros((len(cells), num_bins))
    in_bin[np.arange(len(cells)), cells // 2 // (num_bins * FINE_BINS)] = gaps
    figure = float(np.abs(counts @ in_bin).sum() / len(confidence))
    resampled = [np.abs(drawn @ in_bin).sum(axis=1) for drawn in resampled_counts(counts, generator)]
    low, high = percentiles(np.concatenate(resampled) / len(confidence))
    return max(0.0, 2 * figure - high), max(0.0, 2 * figure - low)


def label_intervals(
    labels: np.ndarray, predicted: np.ndarray, num_labels: int, seed: int = 0
) -> dict[str, Interval]:
    """Return the intervals of `accuracy` and `macro_f1`, in which a class without rows and predictions counts
    as 0.

    Macro F1 of a resample is lower on average, because it lacks rows of rare classes: with very many classes
    all of its percentiles are below the figure. So they are moved by that difference.
    """
    from scipy.sparse import csr_array

    cells, counts = np.unique(np.asarray(labels) * num_labels + predicted, return_counts=True)
    true, chosen, order = cells // num_labels, cells % num_labels, np.arange(len(cells))
    ones = np.ones(len(cells))
    shape = (len(cells), num_labels)
    generator = np.random.default_rng(seed)
    right = csr_array(((true == chosen).astype(float), (order, true)), shape)
    both = csr_array((ones, (order, true)), shape) + csr_array((ones, (order, chosen)), shape)
    accuracies, scores = [], []
    for drawn in resampled_counts(counts, generator):
        # (num_resamples, num_labels): true positives; rows + predictions
        found, sizes = drawn @ right, drawn @ both
        accuracies.append(found.sum(axis=1) / len(labels))
        scores.append((2 * found / np.maximum(sizes, 1)).mean(axis=1))
    figure = (2 * (counts @ right) / np.maximum(counts @ both, 1)).mean()
    resampled = np.concatenate(scores)
    macro_f1 = percentiles(np.clip(resampled + (figure - resampled.mean()), 0, 1))
    return {"accuracy": percentiles(np.concatenate(accuracies)), "macro_f1": macro_f1}
