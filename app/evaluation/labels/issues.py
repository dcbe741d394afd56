"""Out-of-fold logits -> rows whose label may be wrong, the least plausible label first, by cleanlab."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np

from ...errors import InputError
from ..metrics import probabilities

logger = logging.getLogger(__name__)
# Probabilities in double precision at once
CHUNK_NUMBERS = 1 << 22
# logits, of which cleanlab takes all probabilities at once
MAX_NUMBERS = 300_000_000
REMEDY = "cleanlab is needed: pip install -r requirements-labels.txt -c constraints.txt"


@dataclass(frozen=True)
class LabelIssues:
    """What out-of-fold logits say about labels.

    `order` are positions of the rows that are predicted with other labels than they have, the least plausible
    first; `score` (num_rows,) is cleanlab's label quality; `suggested` are class ids (num_rows,), or label
    sets (num_rows, num_labels) bool; `flagged` (num_rows,) bool is what confident learning takes for wrong.
    Of one label a row, `overlaps` are pairs of class ids with the number of rows that are estimated to have
    the one label and to be of the other class, the most first; of label sets, `missing` and `extra`
    (num_labels,) say in how many rows each label is taken for left out or put in by mistake.
    """

    order: np.ndarray
    score: np.ndarray
    suggested: np.ndarray
    flagged: np.ndarray
    overlaps: list[tuple[int, int, int]] = field(default_factory=list)
    missing: np.ndarray | None = None
    extra: np.ndarray | None = None


def check_cleanlab() -> None:
    """Raise InputError unless cleanlab is installed."""
    try:
        import cleanlab  # noqa: F401
    except ImportError as error:
        raise InputError(REMEDY) from error


def find_label_issues(labels: np.ndarray, logits: np.ndarray) -> LabelIssues:
    """Return the issues of `labels`, (num_rows,) class ids, given logits (num_rows, num_labels) of models
    without these rows.

    Of very many rows and classes only the ranking is computed: nothing is flagged, and there are no overlaps.
    """
    check_cleanlab()
    labels = np.asarray(labels, np.int64)
    score, suggested = score_labels(labels, logits)
    order = least_plausible(suggested != labels, score)
    flagged, overlaps = np.zeros(len(labels), bool), []
    if logits.size <= MAX_NUMBERS:
        flagged, overlaps = _confident_learning(labels, probabilities(np.asarray(logits)))
    else:
        logger.warning(
            "%s logits are too many for confident learning: rows are ranked, not flagged.", f"{logits.size:,}"
        )
    return LabelIssues(order, score, suggested, flagged, overlaps)


def least_plausible(is_other: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the positions of the rows that are predicted otherwise, `is_other` (num_rows,) bool, the lowest
    score first."""
    other = np.flatnonzero(is_other)
    return other[np.argsort(score[other], kind="stable")]


def score_labels(labels: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the label quality, float64, and the predicted class id of each row, both (num_rows,)."""
    from cleanlab.rank import get_label_quality_scores

    step = max(1, CHUNK_NUMBERS // logits.shape[1])
    scores = [
        get_label_quality_scores(labels[start : start + step], probabilities(logits[start : start + step]))
        for start in range(0, len(labels), step)
    ]
    return np.concatenate(scores), np.asarray(logits).argmax(axis=1)


def _confident_learning(
    labels: np.ndarray, pred_probs: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    from cleanlab.count import compute_confident_joint
    from cleanlab.dataset import find_overlapping_classes
    from cleanlab.filter import find_label_issues as find_flagged

    joint = compute_confident_joint(labels, pred_probs)
    flagged = find_flagged(labels, pred_probs, confident_joint=joint, n_jobs=1)
    table = find_overlapping_classes(labels, pred_probs, confident_joint=joint, num_examples=len(labels))
    columns = (table[name] for name in ("Class Index A", "Class Index B", "Num Overlapping Examples"))
    return flagged, [(int(a), int(b), int(rows)) for a, b, rows in zip(*columns, strict=True) if rows]
