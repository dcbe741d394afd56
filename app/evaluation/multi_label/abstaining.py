"""Label sets of dev rows as thresholds of other rows decide them: what a threshold of confidence may be
chosen and measured on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..logits_file import SplitLogits
from ..measures.selective import RowDecisions, choosing_half
from .decisions import LabelRule, choose_thresholds, sigmoid


def held_out_decisions(dev: SplitLogits, rule: LabelRule) -> RowDecisions:
    """Return how sure and how right the label sets of dev rows are; a set is right where all its labels are.

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
