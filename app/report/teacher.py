"""What a teacher's labels are worth beside a person's, and what they add to the accuracy of a model.

A teacher has labelled the rows of a report too, and many more: a language model, a large run, other people.
A person has labelled only some of these rows. All intervals here are Wilson's, so that they can be compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .bootstrap import Interval
from .confidence import INTERVAL_LEVEL, proportion_interval, risk_curve

NO_LABEL = -1  # in place of the id of a label
SEQUENCE_STEPS = 20  # shares of the surest rows that are tested for a precision
LATEST_FIRST_SHARE = 0.5  # with which the tests begin, where that has enough rows
OTHER_ROWS_P_VALUE = 0.01  # of agreements that differ between the rows of a person and all others


@dataclass(frozen=True)
class TaughtRows:
    """Rows with the label of a person, of a teacher, or of both, as ids of labels, (num_rows,) int64;
    `NO_LABEL` where there is none. `predicted` are the answers of a model, and `confidence` how sure each is,
    as files of predictions have it. `column` has the labels of the teacher."""

    column: str
    labels: np.ndarray
    teacher: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray


@dataclass(frozen=True)
class PoweredAccuracy:
    """An accuracy that also uses rows without a person's label, with its 95 % interval. `weight`, from 0 to
    1, is how much they count."""

    accuracy: float
    interval: Interval
    weight: float


@dataclass(frozen=True)
class SureRows:
    """The rows from a `confidence` on: how many of those with a person's label there are, how many of these
    are right, and a lower bound of the share that is right (one-sided 95 %, Clopper-Pearson)."""

    confidence: float
    rows: int
    right: int
    bound: float


def share_interval(share: float, num_rows: float) -> Interval:
    """Return Wilson's 95 % interval of a share of rows; `num_rows` need not be a whole number (Wilson 1927,
    Probable inference)."""
    from scipy.stats import norm

    z = float(norm.ppf((1 + INTERVAL_LEVEL) / 2))
    centre = share + z**2 / (2 * num_rows)
    distance = z * math.sqrt(share * (1 - share) / num_rows + z**2 / (4 * num_rows**2))
    scale = 1 + z**2 / num_rows
    return max(0.0, (centre - distance) / scale), min(1.0, (centre + distance) / scale)


def powered_accuracy(correct: np.ndarray, agrees: np.ndarray, other_agrees: np.ndarray) -> PoweredAccuracy:
    """Return the accuracy by prediction-powered inference.

    Of n rows with a person's label, `correct` (n,) says where the model is right, and `agrees` (n,) where it
    has the teacher's label; of N rows without a person's, `other_agrees` (N,). All are bool. With the means
    over these rows,

        accuracy = mean(correct) + w (mean(other_agrees) - mean(agrees))
        variance = var(correct - w agrees) / n + w^2 var(other_agrees) / N
        w = cov(correct, agrees) / ((1 + n / N) var(all agrees)), between 0 and 1

    from Angelopoulos, Bates, Fannjiang, Jordan and Zrnic 2023, Prediction-powered inference, Science 382,
    669-674 (w = 1), with the weight of Angelopoulos, Duchi and Zrnic 2023, PPI++, arXiv:2311.01453. So the
    teacher's errors cancel, whatever they are; with a bad teacher w is 0. The interval is Wilson's for as
    many rows as would have this variance, because the normal one is too short near 1.
    """
    num_rows = len(correct)
    num_others = len(other_agrees)
    right = correct.astype(np.float64)
    same = agrees.astype(np.float64)
    other_same = other_agrees.astype(np.float64)
    weight = 0.0
    spread = np.concatenate([same, other_same]).var()
    if spread > 0 and num_rows > 1:
        covariance = np.cov(right, same)[0, 1]
        weight = float(np.clip(covariance / ((1 + num_rows / num_others) * spread), 0, 1))
    accuracy = float(np.clip(right.mean() + weight * (other_same.mean() - same.mean()), 0, 1))
    variance = (right - weight * same).var() / num_rows + weight**2 * other_same.var() / num_others
    plain_variance = right.var() / num_rows
    effective_rows = float(num_rows)
    if variance > 0 and plain_variance > 0:
        effective_rows = float(num_rows * plain_variance / variance)
    return PoweredAccuracy(accuracy, share_interval(accuracy, effective_rows), weight)


def sure_rows(confidence: np.ndarray, correct: np.ndarray, threshold: float) -> SureRows:
    """Return how the rows from a threshold on do; arrays are (num_rows,)."""
    is_sure = confidence >= threshold
    num_sure = int(is_sure.sum())
    num_right = int(correct[is_sure].sum())
    bound, _highest = proportion_interval(num_right, num_sure, "greater")
    return SureRows(threshold, num_sure, num_right, bound)


def surely_has(precision: float, right: float, rows: int) -> bool:
    """Return whether the lower bound of right / rows, as `SureRows` has it, is not below the precision: the
    exact test of one side, which is quicker than the bound."""
    from scipy.stats import binom

    return bool(binom.sf(right - 1, rows, precision) <= 1 - INTERVAL_LEVEL)


def certain_threshold(confidence: np.ndarray, correct: np.ndarray, precision: float) -> SureRows | None:
    """Return the lowest threshold of which it is 95 % certain that rows from it on are right with the wanted
    precision; None where there is none. Arrays are (num_rows,).

    The surest 5, 10, 15 ... % of the rows are tested in this order, and the first share that fails ends the
    sequence, so that many tests cost no certainty (fixed sequence testing, as in Angelopoulos, Bates, Candes,
    Jordan and Lei 2021, Learn then test, arXiv:2110.01052). Few rows fail by chance: the first share is one
    that would pass with half of the errors that the precision allows, or else half of the rows. No label
    decides which it is.
    """
    num_rows = len(confidence)
    curve = risk_curve(confidence, correct)
    certain = None
    for step in range(1, SEQUENCE_STEPS + 1):
        share = step / SEQUENCE_STEPS
        position = min(int(np.searchsorted(curve.coverage, share - 1e-9)), len(curve.coverage) - 1)
        rows = round(float(curve.coverage[position]) * num_rows)
        right = rows - round(float(curve.risk[position]) * rows)
        expected_right = np.floor(rows * (1 + precision) / 2)
        is_large = surely_has(precision, expected_right, rows)
        is_half = share >= LATEST_FIRST_SHARE and surely_has(precision, rows - 1, rows)
        if certain is None and not is_large and not is_half:
            continue
        if not surely_has(precision, right, rows):
            break
        certain = float(curve.confidence[position])
    if certain is None:
        return None
    return sure_rows(confidence, correct, certain)


def teacher_metrics(
    rows: TaughtRows, threshold: float | None = None, precision: float | None = None
) -> dict[str, Any]:
    """Return what report.json has of a teacher under `teacher`. With a wanted `precision`, the threshold that
    surely has it is found; else a `threshold` may be given. At least one row has the labels of both."""
    has_label = rows.labels != NO_LABEL
    has_teacher = rows.teacher != NO_LABEL
    has_both = has_label & has_teacher
    is_other = has_teacher & ~has_label
    num_rows = int(has_both.sum())
    num_others = int(is_other.sum())
    is_correct = rows.predicted == rows.labels
    is_same = rows.predicted == rows.teacher
    correct = is_correct[has_both]
    agrees = is_same[has_both]
    other_agrees = is_same[is_other]
    shares = {
        "teacher": (rows.teacher == rows.labels)[has_both],
        "model": correct,
        "agreement": agrees,
    }
    metrics: dict[str, Any] = {"column": rows.column, "rows": num_rows, "other_rows": num_others}
    for key, values in shares.items():
        share = float(values.mean())
        metrics[key] = {"share": share, "interval": list(share_interval(share, num_rows))}
    if num_others:
        powered = powered_accuracy(correct, agrees, other_agrees)
        low, high = metrics["model"]["interval"]
        powered_low, powered_high = powered.interval
        metrics["powered"] = {
            "share": powered.accuracy,
            "interval": [powered_low, powered_high],
            "weight": powered.weight,
            "relative_width": (powered_high - powered_low) / (high - low),
        }
        metrics["other_agreement"] = float(other_agrees.mean())
        metrics["agreement_differs"] = differ(agrees, other_agrees)
    certain = None
    if precision is not None:
        certain = certain_threshold(rows.confidence[has_label], is_correct[has_label], precision)
        metrics["wanted_precision"] = precision
    elif threshold is not None:
        certain = sure_rows(rows.confidence[has_label], is_correct[has_label], threshold)
    if certain is not None:
        metrics["threshold"] = {
            "confidence": certain.confidence,
            "rows": certain.rows,
            "right": certain.right,
            "precision_bound": certain.bound,
            "all_rows": len(rows.confidence),
            "remaining": float((rows.confidence < certain.confidence).mean()),
        }
    return metrics


def differ(agrees: np.ndarray, other_agrees: np.ndarray) -> bool:
    """Return whether model and teacher agree more often on some rows than on others than chance explains:
    then these are not texts of the same kind, or the model was trained on some of them."""
    from scipy.stats import chi2_contingency

    counts = np.array([np.bincount(agrees, minlength=2), np.bincount(other_agrees, minlength=2)])
    if (counts.sum(axis=0) == 0).any():
        return False
    return bool(chi2_contingency(counts).pvalue < OTHER_ROWS_P_VALUE)
