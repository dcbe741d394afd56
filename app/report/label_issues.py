"""Logits of models without these rows -> rows whose label may be wrong, the least plausible first. The
confident learning of cleanlab says which labels it takes for wrong."""

from __future__ import annotations

import numpy as np

from ..tasks.task import Scores, Task
from .confidence import mcnemar
from .metrics import distinct_rows

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
    rows that are predicted otherwise than labelled, the least plausible label first; of all rows how
    plausible it is, and bool, what confident learning takes for wrong. With several labels a row, each of
    them, given or not, is one label."""
    from cleanlab.filter import find_label_issues

    flagged, probabilities = np.zeros(len(scores), bool), task.probabilities(logits, calibrated=False)
    if scores.error is not None:
        quality = np.exp(-scores.error / (2 * scores.figures["near_distance"]))
        flagged = scores.error > FAR_OFF * np.median(scores.error)
    elif scores.labels.ndim == 1:
        quality = probabilities[np.arange(len(scores)), scores.labels]
        flagged = find_label_issues(scores.labels, probabilities, n_jobs=1)
    else:
        quality = np.where(scores.labels, probabilities, 1 - probabilities).min(axis=1)
        for has_label, chances in zip(scores.labels.T.astype(int), probabilities.T, strict=True):
            # A label that all rows have, or none, has nothing to learn from
            if 0 < has_label.sum() < len(scores):
                flagged |= find_label_issues(has_label, np.c_[1 - chances, chances], n_jobs=1)
    wrong = np.flatnonzero(~scores.correct)
    return wrong[np.argsort(quality[wrong], kind="stable")], quality, flagged
