"""How sure and how right decisions are: whether a probability of 0.9 is right nine times out of ten, and
deciding only where the classifier is sure."""

from typing import NamedTuple

import numpy as np

from ..errors import InputError

NUM_BINS = 15
LEVEL = 0.95  # of bounds and intervals
MIN_ROWS = 20  # decided in the half that chooses a threshold; fewer are right by chance


class ConfidenceBins(NamedTuple):
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
    rows = np.bincount(bins)
    used = rows > 0
    sums = (np.bincount(bins, weights=values)[used] for values in (confidence, correct))
    return ConfidenceBins(rows[used], *(values / rows[used] for values in sums))


class Threshold(NamedTuple):
    """Rows are decided from the confidence `value` on. The other figures are of `rows` rows that did not
    choose it: `decided` rows, `right` of them right."""

    value: float
    rows: int
    decided: int
    right: int

    @property
    def bound(self) -> float:
        """The lower end of the one-sided 95 % interval of the precision."""
        return lower_bound(self.right, self.decided)

    def describe(self, precision: float) -> str:
        """Return a line for people about a threshold chosen for `precision`."""
        shown = f"{self.right / self.decided:.4f}" if self.decided else "unknown"
        return (
            f"threshold {self.value:.4f} for precision {precision:g}, chosen on half of dev; on the "
            f"{self.rows:,} rows of the other half it decides {self.decided:,} "
            f"({self.decided / max(1, self.rows):.1%}), precision {shown}, at least {self.bound:.4f} with 95 "
            "% confidence"
        )


def proportion_interval(right: int, rows: int, alternative: str = "two-sided") -> tuple[float, float]:
    """Return the 95 % Clopper-Pearson interval of right / rows; of one side with "greater" or "less"."""
    from scipy.stats import binomtest

    found = binomtest(right, rows, alternative=alternative).proportion_ci(LEVEL, "exact")
    return float(found.low), float(found.high)


def lower_bound(right: int, decided: int) -> float:
    """Return the lower end of the one-sided interval; 0 without rows."""
    return proportion_interval(right, decided, "greater")[0] if right else 0.0


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: won and lost rows as tosses of a fair coin."""
    from scipy.stats import binomtest

    return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0


def risk_coverage(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return falling confidences, the share of rows of at least each, and the share of errors among these.
    All three are (num_confidences,); rows of equal confidence are decided together."""
    falling, of_row, rows = np.unique(-confidence, return_inverse=True, return_counts=True)
    decided, errors = rows.cumsum(), np.bincount(of_row, weights=~correct).cumsum()
    return -falling, decided / len(confidence), errors / decided


def choose_threshold(
    confidence: np.ndarray, correct: np.ndarray, hashes: np.ndarray, precision: float
) -> Threshold:
    """Return the lowest confidence from which on half of the rows have the wanted precision; `hashes`
    (num_rows,) divide the rows: no text is in both halves. Raises InputError where too few have it."""
    chooses = np.asarray(hashes) % 2 == 0
    num_own = int(chooses.sum())
    if not 0 < num_own < len(chooses):
        raise InputError(
            f"--threshold precision=P needs rows of dev, found {len(chooses):,}; set a probability instead"
        )
    falling, coverage, risk = risk_coverage(confidence[chooses], correct[chooses])
    enough = np.rint(coverage * num_own) >= MIN_ROWS
    reached = np.flatnonzero(enough & (1 - risk >= precision - 1e-12))
    if not len(reached):
        best = f"the best is {1 - risk[enough].min():.4f}" if enough.any() else "there are too few rows"
        raise InputError(
            f"--threshold precision={precision:g} cannot be reached on at least {MIN_ROWS} of the "
            f"{num_own:,} rows of dev that choose the threshold: {best}; ask for less, set a probability, or "
            "train a better model"
        )
    value = float(falling[reached[-1]])
    decided = ~chooses & (confidence >= value)
    return Threshold(value, len(chooses) - num_own, int(decided.sum()), int(correct[decided].sum()))
