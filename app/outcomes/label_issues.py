"""Logits of models without these rows -> rows whose label may be wrong, the least plausible first. cleanlab
measures how plausible a label is, and its confident learning says which labels it takes for wrong."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..evaluation.comparison import mcnemar, won_and_lost
from .labelled_outcome import LabelledOutcome

logger = logging.getLogger(__name__)
# Probabilities in double precision at once
CHUNK_NUMBERS = 1 << 22
# logits, of which cleanlab takes all probabilities at once
MAX_NUMBERS = 300_000_000
# Of the test whether models are better than the most frequent answer
LEVEL = 0.05
REMEDY = "cleanlab is needed: pip install -r requirements/labels.txt -c constraints.txt"


@dataclass(frozen=True)
class LabelIssues:
    """What logits say about labels.

    `order` are positions of the rows that are predicted otherwise than they are labelled, the least plausible
    label first; `score` (num_rows,) is cleanlab's label quality; `flagged` (num_rows,) bool is what confident
    learning takes for wrong, and `patterns` which mistakes are frequent, as JSON has them.
    """

    order: np.ndarray
    score: np.ndarray
    flagged: np.ndarray
    patterns: dict


def check_cleanlab() -> None:
    """Raise InputError unless cleanlab is installed."""
    try:
        import cleanlab  # noqa: F401
    except ImportError as error:
        raise InputError(REMEDY) from error


def judge(outcome: LabelledOutcome, scores: Any) -> dict:
    """Return the accuracy of models without these rows, that of always giving the most frequent answer, and
    whether the models may judge labels, `can_judge`: they must be better than that (McNemar, p < 0.05)."""
    is_frequent = outcome.constant_answer(scores)
    won, lost = map(len, won_and_lost(is_frequent, scores.correct))
    can_judge = won > lost and mcnemar(won, lost) < LEVEL
    shares = {"accuracy": float(scores.correct.mean()), "majority": float(is_frequent.mean())}
    return {"can_judge": can_judge, **shares}


def find_issues(outcome: LabelledOutcome, scores: Any, logits: np.ndarray) -> LabelIssues:
    """Return the issues of rows, given their scores and logits by models without these rows. Of very many
    rows and labels only the ranking is computed: nothing is flagged, and there are no patterns."""
    check_cleanlab()
    quality = outcome.label_quality(scores, logits)
    if logits.size <= MAX_NUMBERS:
        flagged, patterns = outcome.flag_labels(scores, logits)
    else:
        flagged, patterns = np.zeros(len(scores), bool), {}
        logger.warning(
            "%s logits are too many for confident learning: rows are ranked, not flagged.", f"{logits.size:,}"
        )
    wrong = np.flatnonzero(~scores.correct)
    return LabelIssues(wrong[np.argsort(quality[wrong], kind="stable")], quality, flagged, patterns)


def in_chunks(
    quality: Callable[[np.ndarray, np.ndarray], np.ndarray], labels: np.ndarray, logits: np.ndarray
) -> np.ndarray:
    """Return the quality of all rows, (num_rows,), computed of a few rows at a time."""
    step = max(1, CHUNK_NUMBERS // logits.shape[1])
    starts = range(0, len(labels), step)
    return np.concatenate([quality(labels[at : at + step], logits[at : at + step]) for at in starts])


def class_quality(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the label quality of class ids, (num_rows,) float64; `probabilities` (num_rows, num_labels)."""
    from cleanlab.rank import get_label_quality_scores

    return get_label_quality_scores(labels, probabilities)


def flag_classes(
    labels: np.ndarray, probabilities: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Return which class ids confident learning takes for wrong, (num_rows,) bool, and overlaps: two class
    ids and the estimated rows with the label of one that are of the other, the most first."""
    from cleanlab.count import compute_confident_joint
    from cleanlab.dataset import find_overlapping_classes
    from cleanlab.filter import find_label_issues

    joint = compute_confident_joint(labels, probabilities)
    flagged = find_label_issues(labels, probabilities, confident_joint=joint, n_jobs=1)
    table = find_overlapping_classes(labels, probabilities, confident_joint=joint, num_examples=len(labels))
    columns = (table[name] for name in ("Class Index A", "Class Index B", "Num Overlapping Examples"))
    return flagged, [(int(a), int(b), int(rows)) for a, b, rows in zip(*columns, strict=True) if rows]


def list_quality(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the label quality of several labels a row, (num_rows,) float64: near the probability of the
    least plausible decision; both arrays are (num_rows, num_labels)."""
    from cleanlab.multilabel_classification import get_label_quality_scores

    # cleanlab takes no list without any label; the score of this row is dropped
    labels = np.concatenate([labels, np.ones_like(labels[:1])])
    return get_label_quality_scores(_lists(labels), np.r_[probabilities, probabilities[:1]])[:-1]


def flag_lists(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return which label of which row confident learning takes for wrong, (num_rows, num_labels) bool."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    flagged = np.zeros(labels.shape, bool)
    # A label that all rows have, or none, has nothing to learn from
    varied = labels.any(axis=0) & ~labels.all(axis=0)
    if varied.any():
        flagged[:, varied] = find_multilabel_issues_per_class(
            _lists(labels[:, varied]), probabilities[:, varied], n_jobs=1
        )
    return flagged


def wrong_labels(flagged: np.ndarray, labels: np.ndarray, label_names: list[str]) -> list[dict]:
    """Return in how many rows each label is missing or extra, the most first, as JSON has it. `flagged` is
    that of `flag_lists`; both arrays are (num_rows, num_labels) bool."""
    counts = [
        (kind, name, int(rows))
        for kind, given in (("missing", False), ("extra", True))
        for name, rows in zip(label_names, (flagged & (labels == given)).sum(axis=0), strict=True)
    ]
    counts.sort(key=lambda entry: -entry[2])
    return [{"label": name, "kind": kind, "rows": rows} for kind, name, rows in counts if rows]


def _lists(labels: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in labels]
