"""Baselines: the most frequent answer or the mean, and a linear model on TF-IDF of characters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.dataset import Split
from ..ngrams.character_model import CharacterModel, beginnings
from ..tasks.probabilities import sigmoid
from ..tasks.task import Task
from ..tasks.thresholds import DEFAULT_THRESHOLD, choose_thresholds
from ..words import N_
from .bootstrap import answer_metrics
from .drawn_rows import distinct_rows
from .paired_differences import MODEL_MINUS_BASELINE, answer_differences

MAX_ROWS = 20_000  # trained on, and measured
MAJORITY = N_("majority class")
MOST_FREQUENT_SET = N_("most frequent set")
MEAN = N_("mean")


@dataclass(frozen=True)
class Sample:
    """Some rows of a split; `labels` (num_rows, ...) are as their task has them, and `targets` as `Split` has
    them."""

    texts: list[str]
    labels: np.ndarray
    targets: np.ndarray | None = None


@dataclass(frozen=True)
class Baseline:
    """A simple model, and its answers for the rows of the report, (num_rows, ...)."""

    name: str
    predicted: np.ndarray


def sample(split: Split) -> Sample:
    """Return texts and labels of at most `MAX_ROWS` rows, drawn at random, in their order."""
    positions = sample_positions(len(split))
    texts = split.table.joined_texts(np.asarray(split.rows)[positions])
    targets = None
    if split.targets is not None:
        targets = np.asarray(split.targets[positions])
    return Sample(beginnings(texts), np.asarray(split.labels)[positions], targets)


def sample_positions(num_rows: int) -> np.ndarray:
    """Return the positions of at most `MAX_ROWS` of so many rows, drawn at random, in their order."""
    positions = np.arange(num_rows)
    if num_rows <= MAX_ROWS:
        return positions
    return np.sort(np.random.default_rng(0).choice(positions, MAX_ROWS, replace=False))


def baselines(
    task: Task,
    train: Sample,
    dev: Sample | None,
    report_rows: Sample,
    characters: CharacterModel,
    model_answers: np.ndarray | None = None,
) -> dict[str, dict]:
    """Return metrics, `intervals` and `rows` of simple models on the rows of the report, by name. With the
    answers of the model for the same rows, also by how much it is above each of them. `characters` is the
    linear model, fitted on the train rows."""
    labels = report_rows.labels
    if labels.ndim == 2:
        labels = labels.astype(bool)
    metrics = {}
    for baseline in (
        constant_baseline(train, labels),
        linear_baseline(characters, dev, report_rows),
    ):
        metrics[baseline.name] = answer_metrics(task, labels, baseline.predicted)
        metrics[baseline.name]["rows"] = len(labels)
        if model_answers is not None:
            answers = model_answers.astype(labels.dtype)
            differences = answer_differences(task, labels, baseline.predicted, answers)
            metrics[baseline.name][MODEL_MINUS_BASELINE] = differences
    return metrics


def constant_baseline(train: Sample, labels: np.ndarray) -> Baseline:
    """Give all rows the mean or the most frequent answer of the training; `labels` are those of the rows."""
    if labels.dtype.kind == "f":
        name = MEAN
        answer = train.labels.mean()
    else:
        (answers,), counts = distinct_rows(train.labels)
        name = MAJORITY if labels.ndim == 1 else MOST_FREQUENT_SET
        answer = answers[counts.argmax()]
    predicted = np.broadcast_to(answer, labels.shape)
    return Baseline(name, predicted.astype(labels.dtype))


def linear_baseline(model: CharacterModel, dev: Sample | None, report_rows: Sample) -> Baseline:
    """Answer by a linear model of character n-grams. Several labels a row have thresholds, chosen on dev (0.5
    without)."""
    outputs = model.outputs(report_rows.texts)
    labels = report_rows.labels
    if labels.dtype.kind == "f":
        predicted = outputs[:, 0]
    elif labels.ndim == 1:
        predicted = outputs.argmax(axis=1)
    else:
        thresholds: np.ndarray | float = DEFAULT_THRESHOLD
        if dev is not None:
            thresholds = choose_thresholds(dev.labels, sigmoid(model.outputs(dev.texts)))
        predicted = sigmoid(outputs) - thresholds >= 0
    return Baseline(model.method, predicted)
