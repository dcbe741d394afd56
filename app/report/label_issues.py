"""Logits of models without these rows -> rows whose label may be wrong, the least plausible first. cleanlab
measures how plausible a label is, and its confident learning says which labels it takes for wrong."""

from __future__ import annotations

import numpy as np

from ..tasks.task import Scores, Task
from .confidence import mcnemar
from .metrics import distinct_rows
from .text import page_environment

LEVEL = 0.05  # of the test whether models are better than the most frequent answer
REMEDY = "cleanlab is needed: pip install -r requirements/labels.txt -c constraints.txt"
FAR_OFF = 4.5  # median errors, about three standard deviations: a number further off may be wrong


def judge(scores: Scores) -> dict:
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


def find_issues(task: Task, scores: Scores, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what the scores and logits of models without these rows say about their labels: positions of the
    rows that are predicted otherwise than labelled, the least plausible label first; of all rows cleanlab's
    label quality, and bool, what confident learning takes for wrong."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    if scores.error is not None:
        quality = np.exp(-scores.error / (2 * scores.figures["near_distance"]))
        flagged = scores.error > FAR_OFF * np.median(scores.error)
    elif scores.labels.ndim == 1:
        probabilities = task.probabilities(logits, False)
        quality = get_label_quality_scores(scores.labels, probabilities)
        flagged = find_label_issues(scores.labels, probabilities, n_jobs=1)
    else:
        quality, flagged = issues_of_lists(scores.labels, task.probabilities(logits, False))
    wrong = np.flatnonzero(~scores.correct)
    return wrong[np.argsort(quality[wrong], kind="stable")], quality, flagged


def issues_of_lists(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the label quality near that of the least plausible decision, and which rows have a label that
    confident learning takes for wrong, (num_rows,) each."""
    from cleanlab.multilabel_classification import get_label_quality_scores
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    def lists(labels: np.ndarray) -> list[list[int]]:
        return [np.flatnonzero(row).tolist() for row in labels]

    # cleanlab takes no list without any label; the score of the row that is added is dropped
    some = np.concatenate([labels, np.ones_like(labels[:1])])
    quality = get_label_quality_scores(lists(some), np.r_[probabilities, probabilities[:1]])[:-1]
    # A label that all rows have, or none, has nothing to learn from
    varied = labels.any(axis=0) & ~labels.all(axis=0)
    flagged = np.zeros(len(labels), bool)
    if varied.any():
        of_labels = find_multilabel_issues_per_class(
            lists(labels[:, varied]), probabilities[:, varied], n_jobs=1
        )
        flagged = of_labels.any(axis=1)
    return quality, flagged


def render_issues(figures: dict, task: Task) -> str:
    """Return what was found about labels as text."""
    template = page_environment(autoescape=False).get_template("label_issues.txt.jinja")
    return template.render(found=figures, kind=task.label_column).strip()
