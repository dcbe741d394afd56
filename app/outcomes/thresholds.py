"""From probabilities to labels: a threshold for each label, chosen on dev."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..evaluation.logits_file import SplitLogits
from ..evaluation.measures.selective import RowDecisions, choosing_half
from ..words import _

DEFAULT_THRESHOLD = 0.5
# Probabilities are not nearer to 0 or 1 than this
CERTAIN = 1e-12
# Logits nearer than this are not told apart: another batch or another runtime may swap them
CLOSE = 1e-3


@dataclass(frozen=True)
class LabelRule:
    """Which labels a row has: those with a probability from their threshold on, `thresholds` (num_labels,)
    float64.

    `chosen_on` is the split on whose `rows` the thresholds were chosen, None for the default;
    `labels_without_rows` of them had no row there.
    """

    thresholds: np.ndarray
    chosen_on: str | None = None
    rows: int = 0
    labels_without_rows: int = 0

    def with_thresholds(self, thresholds: np.ndarray, chosen_on: str, labels: np.ndarray) -> LabelRule:
        """Return the rule with thresholds that were chosen on rows with `labels`, (num_rows, num_labels)."""
        absent = int((np.asarray(labels).sum(axis=0, dtype=np.int64) == 0).sum())
        return replace(
            self, thresholds=thresholds, chosen_on=chosen_on, rows=len(labels), labels_without_rows=absent
        )

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which labels each row has, (num_rows, num_labels) bool, for probabilities of that shape."""
        return probabilities - self.thresholds >= 0

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure decisions are, (num_rows,): that on a row is as sure as its least certain label.

        A decision on a label is as sure as its probability says, once logits are moved so that the threshold
        is at one half. So 1/2 is at the threshold.
        """
        moved = self.moved(probabilities)
        return np.where(self.decide(probabilities), moved, 1 - moved).min(axis=1)

    def moved(self, probabilities: np.ndarray) -> np.ndarray:
        """Return probabilities whose logits are moved so that the threshold is at one half."""
        return sigmoid(_logit(probabilities) - _logit(self.thresholds))


def _logit(probabilities: np.ndarray) -> np.ndarray:
    chances = np.clip(probabilities, CERTAIN, 1 - CERTAIN)
    return np.log(chances) - np.log1p(-chances)


def default_rule(num_labels: int) -> LabelRule:
    """Return the rule of a model for which no thresholds were chosen."""
    return LabelRule(np.full(num_labels, DEFAULT_THRESHOLD))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the probability of each label, float64, of logits of any shape."""
    return np.exp(-np.logaddexp(0, -np.asarray(logits, dtype=np.float64)))


def choose_thresholds(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return for each label the threshold of its best F1, (num_labels,) float64, for arrays (num_rows,
    num_labels).

    A threshold is halfway between two probabilities that occur, and whose logits differ by more than `CLOSE`;
    of equally good ones it is the nearest to 0.5. A label that no row has gets 0.5.
    """
    return np.array([_best_threshold(*columns) for columns in zip(labels.T, probabilities.T, strict=True)])


def _best_threshold(has_label: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the threshold of the best F1 of one label; both arrays are (num_rows,)."""
    num_positive = int(has_label.sum(dtype=np.int64))
    if not num_positive:
        return DEFAULT_THRESHOLD
    order = np.argsort(-probabilities, kind="stable")
    falling = probabilities[order]
    right = np.cumsum(has_label[order], dtype=np.int64)
    f1 = 2 * right / (np.arange(1, len(order) + 1) + num_positive)
    below = np.append(falling[1:], 0.0)
    # CLOSE as a difference of probabilities
    too_close = CLOSE * falling * (1 - falling)
    f1[falling - below <= too_close] = -1
    candidates = (falling + below)[f1 == f1.max()] / 2
    return float(candidates[np.abs(candidates - DEFAULT_THRESHOLD).argmin()])


def rule_values(rule: LabelRule, label_names: list[str]) -> dict:
    """Return a rule as values that JSON can hold."""
    thresholds = dict(zip(label_names, rule.thresholds.tolist(), strict=True))
    return {"thresholds": thresholds, "chosen_on": rule.chosen_on, "rows": rule.rows}


def rule_of(values: dict, label_names: list[str]) -> LabelRule:
    """Return the rule of `rule_values`; raises ValueError, LookupError or TypeError for damaged values."""
    thresholds = [values["thresholds"][name] for name in label_names]
    for name, threshold in zip(label_names, thresholds, strict=True):
        if not (type(threshold) in (int, float) and 0 <= threshold <= 1):
            raise ValueError(f"the threshold of {name} must be from 0 to 1, found {threshold!r}")
    return LabelRule(np.array(thresholds, np.float64), values.get("chosen_on"), int(values.get("rows") or 0))


def describe_rule(rule: LabelRule) -> str:
    """Return a line for people."""
    if rule.chosen_on is None:
        default = _("Threshold {threshold} for every label; none was chosen on dev rows")
        return default.format(threshold=DEFAULT_THRESHOLD)
    chosen = _("Threshold of each label: the best F1 on {rows:,} rows of {split}")
    chosen = chosen.format(rows=rule.rows, split=rule.chosen_on)
    if rule.labels_without_rows:
        absent = _("; {labels:,} labels without a row there have {threshold}")
        chosen += absent.format(labels=rule.labels_without_rows, threshold=DEFAULT_THRESHOLD)
    return chosen


def held_out_decisions(dev: SplitLogits, rule: LabelRule) -> RowDecisions:
    """Return how sure and how right the decisions on dev rows are; a row is right where all its labels are.

    The thresholds of `rule` were chosen on these rows, so they look too good there. Each row is decided by
    thresholds that other rows choose in the same way: one half of those of `choosing_half` by the other half
    of them, and the rest by all of them. Thresholds that were not chosen on dev in this way, but set by a
    person, are used as they are.
    """
    labels, probabilities = np.asarray(dev.labels, bool), sigmoid(dev.logits)
    first = choosing_half(dev.hashes)
    one = first & (np.asarray(dev.hashes) // 2 % 2 == 0)
    other = first & ~one
    is_chosen = np.allclose(rule.thresholds, choose_thresholds(labels, probabilities))
    confidence, correct = np.empty(len(dev)), np.empty(len(dev), bool)
    for rows, choosing in ((one, other), (other, one), (~first, first)):
        thresholds = (
            choose_thresholds(labels[choosing], probabilities[choosing]) if is_chosen else rule.thresholds
        )
        by_others = replace(rule, thresholds=thresholds)
        confidence[rows] = by_others.confidence(probabilities[rows])
        correct[rows] = (by_others.decide(probabilities[rows]) == labels[rows]).all(axis=1)
    return RowDecisions(confidence, correct)
