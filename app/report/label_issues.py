"""Logits of models without these rows -> rows whose label may be wrong, the least plausible first. cleanlab
measures how plausible a label is, and its confident learning says which labels it takes for wrong."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..tasks.task import Scores, Task
from .confidence import mcnemar
from .metrics import distinct_rows
from .text import page_environment

logger = logging.getLogger(__name__)
MAX_NUMBERS = 300_000_000  # logits, of which cleanlab takes all probabilities at once
LEVEL = 0.05  # of the test whether models are better than the most frequent answer
MAX_PATTERNS, MAX_PRINTED = 1000, 10  # frequent mistakes in JSON, and printed
FAR_OFF = 3.0  # standard deviations of all errors: rows that are further off may have a wrong number
NORMAL = 1.4826  # standard deviations in the median distance from the median, of normal errors
REMEDY = "cleanlab is needed: pip install -r requirements/labels.txt -c constraints.txt"


class LabelIssues(NamedTuple):
    """What logits say about labels: `order` are positions of the rows that are predicted otherwise than they
    are labelled, the least plausible label first; `score` (num_rows,) is cleanlab's label quality; `flagged`
    (num_rows,) bool is what confident learning takes for wrong, and `patterns` which mistakes are frequent,
    as JSON has them."""

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


def judge(task: Task, scores: Scores) -> dict:
    """Return the accuracy of models without these rows, that of always giving one answer (the most frequent
    one, or the mean), and whether the models may judge labels, `can_judge`: they must be better than that
    (McNemar, p < 0.05)."""
    if scores.error is None:
        (answers,), counts = distinct_rows(scores.labels)
        is_same = scores.labels == answers[counts.argmax()]
        is_constant = is_same.reshape(len(scores), -1).all(axis=1)
    else:
        is_constant = np.abs(scores.labels - scores.labels.mean()) <= scores.figures["near_distance"]
    won, lost = int((scores.correct & ~is_constant).sum()), int((is_constant & ~scores.correct).sum())
    shares = {"accuracy": float(scores.correct.mean()), "majority": float(is_constant.mean())}
    return {"can_judge": won > lost and mcnemar(won, lost) < LEVEL, **shares}


def find_issues(task: Task, scores: Scores, logits: np.ndarray) -> LabelIssues:
    """Return the issues of rows, given their scores and logits by models without these rows. Of very many
    rows and labels only the ranking is computed: nothing is flagged, and there are no patterns."""
    check_cleanlab()
    labels, flagged, patterns = scores.labels, np.zeros(len(scores), bool), {}
    if scores.error is not None:
        quality = np.exp(-scores.error / (2 * scores.figures["near_distance"]))
        errors = scores.predicted - labels
        distance = np.abs(errors - np.median(errors))
        flagged = distance > FAR_OFF * NORMAL * np.median(distance)
    else:
        quality = label_quality(labels, task.probabilities(logits, False))
        if logits.size <= MAX_NUMBERS:
            flag = flag_classes if labels.ndim == 1 else flag_lists
            flagged, patterns = flag(labels, task.probabilities(logits, False), task.label_names)
        else:
            logger.warning(
                "%s logits are too many for confident learning: rows are ranked, not flagged.",
                f"{logits.size:,}",
            )
    wrong = np.flatnonzero(~scores.correct)
    return LabelIssues(wrong[np.argsort(quality[wrong], kind="stable")], quality, flagged, patterns)


def label_quality(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the label quality, (num_rows,) float64: the probability of the label or, of several labels a
    row, near that of the least plausible decision."""
    if labels.ndim == 1:
        from cleanlab.rank import get_label_quality_scores

        return get_label_quality_scores(labels, probabilities)
    from cleanlab.multilabel_classification import get_label_quality_scores

    # cleanlab takes no list without any label; the score of this row is dropped
    labels = np.concatenate([labels, np.ones_like(labels[:1])])
    return get_label_quality_scores(_lists(labels), np.r_[probabilities, probabilities[:1]])[:-1]


def flag_classes(labels: np.ndarray, probabilities: np.ndarray, names: list[str]) -> tuple[np.ndarray, dict]:
    """Return which class ids confident learning takes for wrong, (num_rows,) bool, and which classes overlap:
    two of them and the estimated rows with the label of one that are of the other, the most first."""
    from cleanlab.count import compute_confident_joint
    from cleanlab.dataset import find_overlapping_classes
    from cleanlab.filter import find_label_issues

    joint = compute_confident_joint(labels, probabilities)
    flagged = find_label_issues(labels, probabilities, confident_joint=joint, n_jobs=1)
    table = find_overlapping_classes(labels, probabilities, confident_joint=joint, num_examples=len(labels))
    pairs = table[["Class Index A", "Class Index B", "Num Overlapping Examples"]].astype(int).values.tolist()
    found = [{"classes": [names[a], names[b]], "rows": rows} for a, b, rows in pairs if rows]
    return flagged, {"overlapping_classes": found[:MAX_PATTERNS]}


def flag_lists(labels: np.ndarray, probabilities: np.ndarray, names: list[str]) -> tuple[np.ndarray, dict]:
    """Return the rows with a label that confident learning takes for wrong, (num_rows,) bool, and in how many
    rows each label is missing or extra, the most first."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    flagged = np.zeros(labels.shape, bool)
    # A label that all rows have, or none, has nothing to learn from
    varied = labels.any(axis=0) & ~labels.all(axis=0)
    if varied.any():
        flagged[:, varied] = find_multilabel_issues_per_class(
            _lists(labels[:, varied]), probabilities[:, varied], n_jobs=1
        )
    wrong = [
        {"label": name, "kind": kind, "rows": int(rows)}
        for kind, given in (("missing", False), ("extra", True))
        for name, rows in zip(names, (flagged & (labels == given)).sum(axis=0), strict=True)
        if rows
    ]
    wrong.sort(key=lambda entry: -entry["rows"])
    return flagged.any(axis=1), {"wrong_labels": wrong[:MAX_PATTERNS]}


def _lists(labels: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in labels]


def render_issues(figures: dict, task: Task) -> str:
    """Return what was found about labels as text."""
    template = page_environment(autoescape=False).get_template("label_issues.txt.jinja")
    return template.render(found=figures, kind=task.label_column, most=MAX_PRINTED).strip()
