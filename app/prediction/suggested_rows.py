"""Which rows of a pool without labels are worth labelling next, by what a model says of them."""

import numpy as np

from ..errors import InputError
from ..tasks.task import Task


def usual_strategy(task: Task) -> str:
    """Return the strategy for a task where none is asked for."""
    return "least_confidence" if task.form.has_several else "breaking_ties"


def check_strategy(strategy: str, task: Task) -> None:
    """Raise InputError for a strategy that cannot find uncertain rows of a task.

    Where a row may have several labels, their probabilities do not compete: the two largest are close where
    the model is sure of both labels, and where it is sure of none.
    """
    if strategy == "breaking_ties" and task.form.has_several:
        raise InputError(
            "--strategy breaking_ties is for models of one label a row, found a model of several labels; "
            "use least_confidence"
        )


def choose_rows(
    strategy: str,
    count: int,
    probabilities: np.ndarray,
    confidence: np.ndarray,
    answers: np.ndarray,
    seed: int = 0,
    label_counts: np.ndarray | None = None,
) -> np.ndarray:
    """Return the ids of `count` different rows of a pool, (count,), the most useful first.

    `strategy` is one of `STRATEGIES`. `probabilities` (num_rows, num_labels), `confidence` (num_rows,) and
    `answers`, (num_rows,) or (num_rows, num_labels), are what a task makes of the logits of the rows. With
    `label_counts`, (num_labels,), how many rows each label has already, least_confidence chooses rows that
    may have rare labels before others of which the model is as sure.
    """
    if strategy == "random":
        return np.random.default_rng(seed).permutation(len(confidence))[:count]
    if strategy == "least_confidence":
        if label_counts is None:
            return np.argsort(confidence, kind="stable")[:count]
        usefulness = (1 - confidence) * rarity(probabilities, label_counts)
        return np.argsort(-usefulness, kind="stable")[:count]
    if strategy == "breaking_ties":
        two_largest = np.sort(probabilities, axis=1)[:, -2:]
        differences = two_largest[:, 1] - two_largest[:, 0]
        return np.argsort(differences, kind="stable")[:count]
    # The surest rows of each label in turn: of the surest of all, nearly all can have one label
    labels = first_labels(probabilities, answers)
    place = np.empty(len(confidence), np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        surest_first = rows[np.argsort(-confidence[rows], kind="stable")]
        place[surest_first] = np.arange(len(rows))
    return np.lexsort((-confidence, place))[:count]


def rarity(probabilities: np.ndarray, label_counts: np.ndarray) -> np.ndarray:
    """Return how rare the labels are that rows may have, (num_rows,) from 0 to 1: the mean over labels, by
    their probabilities, of 1 / sqrt(rows with the label + 1)."""
    rarities = 1 / np.sqrt(label_counts + 1)
    return probabilities @ rarities / np.maximum(probabilities.sum(axis=1), 1e-9)


def first_labels(probabilities: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return the label of each answer, (num_rows,); of several the most probable, and -1 for none."""
    if answers.ndim == 1:
        return answers
    labels = np.where(answers, probabilities, -1.0).argmax(axis=1)
    labels[~answers.any(axis=1)] = -1
    return labels
