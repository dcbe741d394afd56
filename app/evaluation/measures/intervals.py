"""How far a figure would move with another sample of rows: 95 % bootstrap intervals.

Drawing rows with replacement is drawing how often each cell of a table is chosen, where the rows of a cell
are alike. So a million rows cost no more than their table: the confusion matrix for accuracy and macro F1;
narrow ranges of values for a mean; bins of confidence, right and wrong, for the calibration error.
"""

from collections.abc import Iterator

import numpy as np

from .calibration_error import bin_of_rows

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


def resampled_counts(counts: np.ndarray, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield blocks, (num_resamples, num_cells), of how often a cell is drawn; `counts` (num_cells,) rows."""
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
