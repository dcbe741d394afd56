"""Whether a probability of 0.9 is right nine times out of ten: the expected calibration error."""

from dataclasses import dataclass

import numpy as np

NUM_BINS = 15


@dataclass(frozen=True)
class ConfidenceBins:
    """Bins of rows with about the same confidence, and about as many rows, in the order of confidence.
    `rows`, `confidence` (mean) and `accuracy` are (num_bins,); bins without rows are left out."""

    rows: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: the mean over rows of |accuracy - mean confidence| of their bin."""
        return float((np.abs(self.accuracy - self.confidence) * self.rows).sum() / self.rows.sum())


def bin_of_rows(confidence: np.ndarray, num_bins: int = NUM_BINS) -> np.ndarray:
    """Return the bin of each row, (num_rows,); edges are quantiles, and equal confidences share a bin."""
    edges = np.quantile(confidence, np.linspace(0, 1, num_bins + 1)[1:-1])
    return np.searchsorted(edges, confidence)


def confidence_bins(confidence: np.ndarray, correct: np.ndarray, num_bins: int = NUM_BINS) -> ConfidenceBins:
    """Return the bins of `confidence`, (num_rows,) probabilities, of `correct` (num_rows,) bool."""
    bins = bin_of_rows(confidence, num_bins)
    rows = np.bincount(bins, minlength=num_bins)
    used = rows > 0
    sums = (np.bincount(bins, weights=values, minlength=num_bins)[used] for values in (confidence, correct))
    return ConfidenceBins(rows[used], *(values / rows[used] for values in sums))
