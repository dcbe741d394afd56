"""How sure and how right decisions are: whether a probability of 0.9 is right nine times out of ten, and
deciding only where the classifier is sure."""

from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..tasks.scores import Scores
from ..tasks.task import Task

NUM_BINS = 15
INTERVAL_LEVEL = 0.95  # of bounds and intervals
MIN_ROWS = 20  # decided in the half that chooses a threshold; fewer are right by chance
TOLERANCE = 1e-12  # a share of errors is a difference of floats


@dataclass(frozen=True)
class ConfidenceBins:
    """Bins of rows with about the same confidence, in the order of confidence; all arrays are (num_bins,)."""

    rows: np.ndarray
    mean_confidence: np.ndarray
    accuracy: np.ndarray


@dataclass(frozen=True)
class RiskCurve:
    """What happens where only the surest rows are decided, by falling `confidence`: `coverage` is the share
    of rows that are at least that sure, and `risk` the share of errors among them. All are
    (num_confidences,)."""

    confidence: np.ndarray
    coverage: np.ndarray
    risk: np.ndarray


@dataclass(frozen=True)
class ChosenThreshold:
    """A confidence from which rows are decided, and a lower bound of the precision of these decisions, 95 %;
    `message` says for people how it was chosen."""

    confidence: float
    precision_bound: float
    message: str


def confidence_bins(confidence: np.ndarray, correct: np.ndarray, num_bins: int = NUM_BINS) -> ConfidenceBins:
    """Return bins of about as many rows each; bins without rows are left out."""
    # Edges are quantiles, and equal confidences share a bin
    edges = np.quantile(confidence, np.linspace(0, 1, num_bins + 1)[1:-1])
    bin_of_row = np.searchsorted(edges, confidence)
    rows = np.bincount(bin_of_row)
    has_rows = rows > 0
    rows = rows[has_rows]
    confidence_sums = np.bincount(bin_of_row, weights=confidence)[has_rows]
    num_correct = np.bincount(bin_of_row, weights=correct)[has_rows]
    return ConfidenceBins(rows, confidence_sums / rows, num_correct / rows)


def calibration_error(scores: Scores) -> np.floating:
    """Return the mean over rows of |accuracy - mean confidence| of their bin."""
    bins = confidence_bins(scores.confidence, scores.correct)
    gaps = np.abs(bins.accuracy - bins.mean_confidence)
    return (gaps * bins.rows).sum() / bins.rows.sum()


def calibration_effect(task: Task, labels: np.ndarray, logits: np.ndarray, measured_on: str) -> dict:
    """Return what the fitted temperature does to rows, as report.json has it; empty without one."""
    if not task.calibration:
        return {}
    effect: dict = {"measured_on": measured_on}
    for key, calibrated in (("before", False), ("after", True)):
        scores = task.score(labels, logits, calibrated=calibrated)
        effect[key] = {"loss": float(scores.loss.mean()), "ece": float(calibration_error(scores))}
    return effect


def proportion_interval(right: int, rows: int, alternative: str = "two-sided") -> tuple[float, float]:
    """Return the 95 % Clopper-Pearson interval of right / rows; of one side with "greater" or "less"."""
    from scipy.stats import binomtest

    if not rows:
        return 0.0, 1.0
    test = binomtest(right, rows, alternative=alternative)
    interval = test.proportion_ci(INTERVAL_LEVEL, "exact")
    return float(interval.low), float(interval.high)


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: won and lost rows as tosses of a fair coin."""
    from scipy.stats import binomtest

    tosses = won + lost
    if not tosses:
        return 1.0
    return float(binomtest(won, tosses).pvalue)


def risk_curve(confidence: np.ndarray, correct: np.ndarray) -> RiskCurve:
    """Return the curve of rows, (num_rows,) each; rows of equal confidence are decided together."""
    negative, positions, rows = np.unique(-confidence, return_inverse=True, return_counts=True)
    num_decided = rows.cumsum()
    num_errors = np.bincount(positions, weights=~correct).cumsum()
    return RiskCurve(-negative, num_decided / len(confidence), num_errors / num_decided)


def choose_threshold(
    confidence: np.ndarray, correct: np.ndarray, hashes: np.ndarray, precision: float
) -> ChosenThreshold:
    """Choose the lowest confidence whose decisions have the wanted precision on half of the rows, and measure
    their precision on the other half. `hashes` (num_rows,) of the texts divide the rows, so that no text is
    in both halves. Raises InputError where no confidence has this precision on enough rows."""
    chooses = np.asarray(hashes) % 2 == 0
    num_choosing = int(chooses.sum())
    num_measuring = int((~chooses).sum())
    if not num_choosing or not num_measuring:
        num_rows = num_choosing + num_measuring
        raise InputError(
            f"--threshold precision=P needs rows of dev, found {num_rows:,}; set a probability instead"
        )
    threshold = lowest_confidence(confidence[chooses], correct[chooses], precision)
    correct_decisions = correct[~chooses & (confidence >= threshold)]
    num_right = int(correct_decisions.sum())
    num_decided = len(correct_decisions)
    bound, _highest = proportion_interval(num_right, num_decided, "greater")
    measured = "unknown"
    if num_decided:
        measured = f"{num_right / num_decided:.4f}"
    message = (
        f"threshold {threshold:.4f} for precision {precision:g}, chosen on half of dev; on the "
        f"{num_measuring:,} rows of the other half it decides {num_decided:,} "
        f"({num_decided / num_measuring:.1%}), precision {measured}, at least {bound:.4f} with "
        "95 % confidence"
    )
    return ChosenThreshold(float(threshold), bound, message)


def lowest_confidence(confidence: np.ndarray, correct: np.ndarray, precision: float) -> np.floating:
    """Return the lowest confidence at which the rows that are at least as sure have the wanted precision, and
    are at least `MIN_ROWS`; raises InputError where there is none."""
    num_rows = len(confidence)
    curve = risk_curve(confidence, correct)
    precisions = 1 - curve.risk
    has_enough_rows = np.rint(curve.coverage * num_rows) >= MIN_ROWS
    is_precise = precisions >= precision - TOLERANCE
    reached = curve.confidence[has_enough_rows & is_precise]
    if len(reached):
        return reached[-1]
    best = "there are too few rows"
    if has_enough_rows.any():
        best = f"the best is {precisions[has_enough_rows].max():.4f}"
    raise InputError(
        f"--threshold precision={precision:g} cannot be reached on at least {MIN_ROWS} of the "
        f"{num_rows:,} rows of dev that choose the threshold: {best}; ask for less, set a probability, or "
        "train a better model"
    )
