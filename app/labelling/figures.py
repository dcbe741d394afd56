"""What the texts that were kept apart say of the model: accuracy and macro F1 with intervals, the curve over
answers, and what more answers would bring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..report.bootstrap import answer_metrics
from ..report.confidence import INTERVAL_LEVEL
from ..tasks import unordered_task
from ..vectors.head import LinearHead
from .label_file import Answer

MORE_ANSWERS = 50  # whose gain is estimated
MIN_POINTS = 8  # of the curve, to estimate the gain
# The first quarter of the answers is no part of the estimate: the curve is steeper there, and bends it
FIRST_SHARE = 0.25
MIN_TEST_ROWS = 10
SMALL_GAIN = 0.01  # of the accuracy
SMALL_CHANGE = 0.01  # share of other texts that get another label than `MORE_ANSWERS` answers ago


@dataclass(frozen=True)
class CurvePoint:
    """The head that was fitted after so many answers."""

    answers: int
    head: LinearHead


@dataclass(frozen=True)
class Figures:
    """See `LabelSession.status`."""

    kept: dict[str, Any] | None = None
    curve: list[list[float]] = field(default_factory=list)
    gain: dict[str, float] | None = None
    enough: bool = False

    @classmethod
    def of(
        cls,
        labels: np.ndarray,
        vectors: np.ndarray,
        other_vectors: np.ndarray,
        head: LinearHead,
        points: Sequence[CurvePoint],
        num_answers: int,
    ) -> Figures:
        """Return the figures of kept texts, whose `labels` are 0 and 1, (num_rows, num_labels).
        `other_vectors` are those of texts without an answer, (num_texts, size)."""
        predicted = decided(head.probabilities(vectors), head.has_several)
        is_right = right(labels, predicted)
        test_figures = {
            "rows": len(labels),
            "accuracy": share_with_interval(int(is_right.sum()), len(is_right)),
            "macro_f1": macro_f1(labels, predicted, head.has_several),
        }
        answers = []
        rights = []
        for point in points:
            answers.append(point.answers)
            rights.append(right(labels, decided(point.head.probabilities(vectors), head.has_several)))
        accuracies = np.array(rights).mean(axis=1).tolist() if rights else []
        curve = [list(point) for point in zip(answers, accuracies, strict=True)]
        gain = None
        if len(points) >= MIN_POINTS and len(labels) >= MIN_TEST_ROWS:
            gain = estimated_gain(np.array(answers), np.array(rights), num_answers)
        enough = False
        if gain is not None and gain["value"] < SMALL_GAIN:
            earlier_heads = [point.head for point in points if point.answers <= num_answers - MORE_ANSWERS]
            if earlier_heads:
                enough = share_changed(earlier_heads[-1], head, other_vectors) <= SMALL_CHANGE
        return cls(test_figures, curve, gain, enough)


def decided(probabilities: np.ndarray, has_several: bool) -> np.ndarray:
    """Return the labels of probabilities, as 0 and 1, (num_rows, num_labels)."""
    if has_several:
        return probabilities > 0.5
    return probabilities.argmax(axis=1)[:, None] == np.arange(probabilities.shape[1])


def right(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return whether all labels of each row are right, (num_rows,). A head that was fitted before a label was
    added does not predict it."""
    num_known = predicted.shape[1]
    is_same = (labels[:, :num_known] > 0) == predicted
    return is_same.all(axis=1) & ~labels[:, num_known:].any(axis=1)


def share_changed(earlier_head: LinearHead, head: LinearHead, vectors: np.ndarray) -> float:
    """Return the share of texts to which a head gives other labels than an earlier one. The accuracy cannot
    have changed by more.

    That a model does not change its answers any more is the sign to stop of Bloodgood and Vijay-Shanker,
    2009, https://aclanthology.org/W09-1107/; the few kept texts alone would show it too early.
    """
    if not len(vectors):
        return 0.0
    earlier = decided(earlier_head.probabilities(vectors), head.has_several)
    labels = decided(head.probabilities(vectors), head.has_several)
    is_changed = ~right(labels, earlier)
    return float(is_changed.mean())


def share_with_interval(count: int, total: int) -> dict[str, float]:
    """Return the share `count / total`, and its 95 % interval by Clopper and Pearson, which is exact also for
    few rows and for shares near 0 and 1."""
    from scipy.stats import binomtest

    interval = binomtest(count, total).proportion_ci(INTERVAL_LEVEL, method="exact")
    return {"value": count / total, "low": float(interval.low), "high": float(interval.high)}


def macro_f1(labels: np.ndarray, predicted: np.ndarray, has_several: bool) -> dict[str, float] | None:
    """Return the mean of the F1 of the labels that a text has or should have, and its 95 % interval by
    drawing the texts again; None for fewer than two such labels."""
    num_known = predicted.shape[1]
    all_predicted = np.zeros(labels.shape, bool)
    all_predicted[:, :num_known] = predicted
    used = np.flatnonzero(labels.any(axis=0) | all_predicted.any(axis=0))
    if len(used) < 2:
        return None
    names = [str(label) for label in used]
    true_labels = labels[:, used] > 0
    answers = all_predicted[:, used]
    task = unordered_task(has_several, names)
    if not has_several:
        true_labels = true_labels.argmax(axis=1)
        answers = answers.argmax(axis=1)
    metrics = answer_metrics(task, true_labels, answers)
    low, high = metrics["intervals"]["macro_f1"]
    return {"value": float(metrics["macro_f1"]), "low": float(low), "high": float(high)}


def agreement_of(answers: Iterable[Answer]) -> dict[str, float] | None:
    """Return how often people gave a text the same labels when it was shown again, with its interval."""
    second_answers = [answer for answer in answers if answer.second_labels is not None]
    if not second_answers:
        return None
    num_same = sum(set(answer.labels) == set(answer.second_labels) for answer in second_answers)
    return {**share_with_interval(num_same, len(second_answers)), "rows": len(second_answers)}


def estimated_gain(answers: np.ndarray, rights: np.ndarray, num_answers: int) -> dict[str, float]:
    """Return by how much `MORE_ANSWERS` would raise the accuracy, with a 95 % interval.

    `answers` (num_points,) are those of the curve, `rights` (num_points, num_rows) whether each kept text was
    right then. The accuracy is taken to be a + b / sqrt(answers), by least squares, without the first points.
    The gain is then a sum over texts, and how it differs between texts gives its interval: most are right or
    wrong all the time, so it is narrower than that of the accuracy. Two more texts, of which one turned right
    and one wrong half way, keep it from being too narrow where few texts did. docs/lab/quality.md has how
    often the interval holds what fifty more answers really brought.
    """
    from scipy.stats import t

    is_used = answers >= FIRST_SHARE * num_answers
    answers = answers[is_used]
    rights = rights[is_used]
    places = -1 / np.sqrt(answers)
    centred = places - places.mean()
    slope_weights = centred / (centred**2).sum()
    step = 1 / np.sqrt(num_answers) - 1 / np.sqrt(num_answers + MORE_ANSWERS)
    gains = step * slope_weights @ rights
    value = float(gains.mean())
    turned = step * slope_weights[len(answers) // 2 :].sum()
    gains = np.append(gains, [value + turned, value - turned])
    num_rows = len(gains)
    error = float(gains.std(ddof=1)) / np.sqrt(num_rows)
    margin = float(t.ppf((1 + INTERVAL_LEVEL) / 2, num_rows - 1)) * error
    return {
        "answers": MORE_ANSWERS,
        "value": value,
        "low": float(value - margin),
        "high": float(value + margin),
    }
