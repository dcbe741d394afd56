"""Out-of-fold logits of label sets -> rows whose set may be wrong, the least plausible set first, by
cleanlab."""

from __future__ import annotations

import logging

import numpy as np

from ..multi_label.decisions import sigmoid
from .issues import CHUNK_NUMBERS, MAX_NUMBERS, LabelIssues, check_cleanlab, least_plausible

logger = logging.getLogger(__name__)


def find_set_issues(labels: np.ndarray, logits: np.ndarray, predicted: np.ndarray) -> LabelIssues:
    """Return the issues of label sets, given logits and predictions of models without these rows.

    All arrays are (num_rows, num_labels), `labels` and `predicted` 0 and 1. Of very many rows and labels only
    the ranking is computed: nothing is flagged.
    """
    check_cleanlab()
    labels, predicted = np.asarray(labels, bool), np.asarray(predicted, bool)
    score = score_sets(labels, logits)
    order = least_plausible((predicted != labels).any(axis=1), score)
    flagged = np.zeros(labels.shape, bool)
    if labels.size <= MAX_NUMBERS:
        flagged = _confident_learning(labels, sigmoid(logits))
    else:
        logger.warning(
            "%s logits are too many for confident learning: rows are ranked, not flagged.", f"{labels.size:,}"
        )
    missing, extra = ((flagged & (labels == given)).sum(axis=0) for given in (False, True))
    return LabelIssues(order, score, predicted, flagged.any(axis=1), missing=missing, extra=extra)


def score_sets(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return the label quality of each set, (num_rows,) float64: near the probability of its least plausible
    label decision."""
    from cleanlab.multilabel_classification import get_label_quality_scores

    step = max(1, CHUNK_NUMBERS // labels.shape[1])
    scores = []
    for start in range(0, len(labels), step):
        part, chances = labels[start : start + step], sigmoid(logits[start : start + step])
        # cleanlab takes no list without any label; the score of this row is dropped
        full = np.ones_like(part[:1])
        scores.append(
            get_label_quality_scores(_lists(np.concatenate([part, full])), np.r_[chances, chances[:1]])[:-1]
        )
    return np.concatenate(scores)


def _confident_learning(labels: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return which label of which row is taken for wrong, (num_rows, num_labels) bool."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    flagged = np.zeros(labels.shape, bool)
    # A label that all rows have, or none, has nothing to learn from
    varied = labels.any(axis=0) & ~labels.all(axis=0)
    if varied.any():
        flagged[:, varied] = find_multilabel_issues_per_class(
            _lists(labels[:, varied]), chances[:, varied], n_jobs=1
        )
    return flagged


def _lists(labels: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in labels]
