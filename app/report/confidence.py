"""How sure and how right decisions are: whether a probability of 0.9 is right nine times out of ten, and
deciding only where the classifier is sure."""

import numpy as np

from ..errors import InputError
from ..tasks.task import Scores

NUM_BINS = 15
LEVEL = 0.95  # of bounds and intervals
MIN_ROWS = 20  # decided in the half that chooses a threshold; fewer are right by chance


def confidence_bins(confidence: np.ndarray, correct: np.ndarray, num_bins: int = NUM_BINS) -> np.ndarray:
    """Return rows, mean confidence and accuracy, (3, num_bins), of bins of rows with about the same
    confidence, and about as many rows, in the order of confidence; bins without rows are left out."""
    # Edges are quantiles, and equal confidences share a bin
    edges = np.quantile(confidence, np.linspace(0, 1, num_bins + 1)[1:-1])
    bins = np.searchsorted(edges, confidence)
    rows = np.bincount(bins)
    used = rows > 0
    sums = (np.bincount(bins, weights=values)[used] for values in (confidence, correct))
    return np.stack([rows[used], *(values / rows[used] for values in sums)])


def calibration_error(scores: Scores) -> np.floating:
    """Return the mean over rows of |accuracy - mean confidence| of their bin."""
    rows, means, accuracy = confidence_bins(scores.confidence, scores.correct)
    return (np.abs(accuracy - means) * rows).sum() / rows.sum()


def proportion_interval(right: int, rows: int, alternative: str = "two-sided") -> tuple[float, float]:
    """Return the 95 % Clopper-Pearson interval of right / rows; of one side with "greater" or "less"."""
    from scipy.stats import binomtest

    if not rows:
        return 0.0, 1.0
    found = binomtest(right, rows, alternative=alternative).proportion_ci(LEVEL, "exact")
    return float(found.low), float(found.high)


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
) -> tuple[float, float, str]:
    """Return the lowest confidence from which on half of the rows have the wanted precision, a lower bound of
    its precision on the other half, 95 %, and a line for people about it. `hashes` (num_rows,) divide the
    rows: no text is in both halves. Raises InputError where too few have it."""
    chooses = np.asarray(hashes) % 2 == 0
    own, rows = int(chooses.sum()), int((~chooses).sum())
    if not own or not rows:
        raise InputError(
            f"--threshold precision=P needs rows of dev, found {own + rows:,}; set a probability instead"
        )
    falling, coverage, risk = risk_coverage(confidence[chooses], correct[chooses])
    enough = np.rint(coverage * own) >= MIN_ROWS
    reached = falling[enough & (1 - risk >= precision - 1e-12)]
    if not len(reached):
        best = f"the best is {1 - risk[enough].min():.4f}" if enough.any() else "there are too few rows"
        raise InputError(
            f"--threshold precision={precision:g} cannot be reached on at least {MIN_ROWS} of the "
            f"{own:,} rows of dev that choose the threshold: {best}; ask for less, set a probability, or "
            "train a better model"
        )
    value, of_other = float(reached[-1]), correct[~chooses & (confidence >= reached[-1])]
    right, decided = int(of_other.sum()), len(of_other)
    bound, _ = proportion_interval(right, decided, "greater")
    shown = f"{right / decided:.4f}" if decided else "unknown"
    said = (
        f"threshold {value:.4f} for precision {precision:g}, chosen on half of dev; on the {rows:,} rows of "
        f"the other half it decides {decided:,} ({decided / rows:.1%}), precision {shown}, at least "
        f"{bound:.4f} with 95 % confidence"
    )
    return value, bound, said
