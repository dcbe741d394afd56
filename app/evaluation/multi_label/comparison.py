"""Two classifiers of label sets on the same rows: which is better, and how sure is that?"""

from __future__ import annotations

import numpy as np

from ..comparison import Comparison, check_same_rows, won_and_lost
from ..logits_file import SplitLogits
from ..measures.intervals import mean_interval
from .decisions import LabelRule
from .intervals import label_set_differences
from .row_sets import decide_rows


def compare_sets(
    one: SplitLogits, other: SplitLogits, rules: tuple[LabelRule, LabelRule], seed: int = 0
) -> Comparison:
    """Return how `other` does against `one`, each with its own thresholds; raises InputError unless their
    rows are the same.

    A row is won or lost where all its labels are right in one of the two only.
    """
    check_same_rows(one, other)
    first, second = (
        decide_rows(split.labels, split.logits, rule) for split, rule in zip((one, other), rules, strict=True)
    )
    generator = np.random.default_rng(seed)
    differences = label_set_differences(first.labels, first.predicted, second.predicted, generator)
    loss = second.loss - first.loss
    differences["loss"] = (float(loss.mean()), mean_interval(loss, generator))
    return Comparison(first, second, *won_and_lost(first.correct, second.correct), differences)
