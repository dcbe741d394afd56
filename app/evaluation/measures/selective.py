"""Deciding only where the classifier is sure: from which confidence on, and how precisely."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...errors import InputError

# Of the lower bound
LEVEL = 0.95
# That must be decided in the half that chooses the threshold; fewer are right by chance
MIN_ROWS = 20


@dataclass(frozen=True)
class RowDecisions:
    """How sure a row's decision is, and whether it is right, both (num_rows,): floats and bool."""

    confidence: np.ndarray
    correct: np.ndarray

    def __len__(self) -> int:
        return len(self.confidence)


class Decisions(Protocol):
    """What a threshold is chosen on: `RowDecisions`, or the scores of an outcome."""

    confidence: np.ndarray
    correct: np.ndarray

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Threshold:
    """Rows are decided from the confidence `value` on. The other figures are of `rows` rows that did not
    choose it: `decided` rows, `right` of them right, and the lower bound of the precision.
    """

    value: float
    rows: int
    decided: int
    right: int

    @property
    def bound(self) -> float:
        """The lower end of the one-sided 95 % Clopper-Pearson interval of the precision."""
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


def lower_bound(right: int, decided: int) -> float:
    """Return the one-sided 95 % Clopper-Pearson lower bound of right / decided; 0 without rows."""
    from scipy.special import betaincinv

    return float(betaincinv(right, decided - right + 1, 1 - LEVEL)) if right else 0.0


def proportion_interval(right: int, rows: int) -> tuple[float, float]:
    """Return the two-sided 95 % Clopper-Pearson interval of right / rows."""
    from scipy.special import betaincinv

    tail, wrong = (1 - LEVEL) / 2, rows - right
    low = float(betaincinv(right, wrong + 1, tail)) if right else 0.0
    return low, float(betaincinv(right + 1, wrong, 1 - tail)) if wrong else 1.0


def risk_coverage(scores: Decisions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return falling confidences, the share of rows of at least each, and the share of errors among these.
    All three are (num_confidences,); rows of equal confidence are decided together."""
    order = np.argsort(-scores.confidence, kind="stable")
    confidence = scores.confidence[order]
    last = np.append(confidence[1:] != confidence[:-1], True)
    counts = np.arange(1, len(order) + 1)
    errors = np.cumsum(~scores.correct[order])
    return confidence[last], counts[last] / len(order), errors[last] / counts[last]


def choosing_half(hashes: np.ndarray) -> np.ndarray:
    """Return which rows choose a threshold, (num_rows,) bool, by `hashes`: no text is in both halves."""
    return np.asarray(hashes) % 2 == 0


def choose_threshold(scores: Decisions, hashes: np.ndarray, precision: float) -> Threshold:
    """Return the lowest confidence from which on half of the rows, by `choosing_half` of `hashes`
    (num_rows,), have the wanted precision. Raises InputError where too few rows have it."""
    chooses = choosing_half(hashes)
    if not 0 < chooses.sum() < len(chooses):
        raise InputError(
            f"--abstain needs rows of dev to choose a threshold on, found {len(chooses):,}; use --threshold"
        )
    own, other = _part(scores, chooses), _part(scores, ~chooses)
    confidence, coverage, risk = risk_coverage(own)
    enough = np.rint(coverage * len(own)) >= MIN_ROWS
    reached = np.flatnonzero(enough & (1 - risk >= precision - 1e-12))
    if not len(reached):
        best = f"the best is {1 - risk[enough].min():.4f}" if enough.any() else "there are too few rows"
        raise InputError(
            f"--abstain precision={precision:g} cannot be reached on at least {MIN_ROWS} of the {len(own):,} "
            f"rows of dev that choose the threshold: {best}; ask for less, set --threshold yourself, or "
            "train a better model"
        )
    value = float(confidence[reached[-1]])
    decided = other.confidence >= value
    return Threshold(value, len(other), int(decided.sum()), int(other.correct[decided].sum()))


def _part(scores: Decisions, rows: np.ndarray) -> RowDecisions:
    return RowDecisions(scores.confidence[rows], scores.correct[rows])
