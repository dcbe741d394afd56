"""The figures of rows: all metrics of their task, tables of classes, and which class is taken for which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..tasks.scores import Scores
from ..tasks.task import Task
from .class_tables import class_table
from .drawn_rows import AnswerPairs, DrawnRows, Matches, distinct_rows, rarer_label
from .metrics import metrics_of
from .ranking import class_counts, ranked_rows

if TYPE_CHECKING:
    from ..data.dataset import Split

MAX_MATRIX_CLASSES = 30  # of a whole confusion matrix; with more, only the wrong pairs are written


def measure(task: Task, scores: Scores) -> dict:
    """Return all metrics of rows as report.json has them: those of the table, precision, recall, F1 and
    support of each label in `classes`, their averages, confusions, and `parents` of a hierarchy."""
    distinct, counts = distinct_rows(scores.labels, scores.predicted)
    labels, predicted = distinct
    pairs = AnswerPairs(task, labels, predicted, rarer_label(task, scores.labels))
    metrics: dict = {"rows": len(scores)}
    metrics |= scores.figures
    metrics |= metric_values(task, scores, DrawnRows(pairs, counts[None]))
    if scores.error is not None:
        # The answers are numbers, and there are no classes
        return metrics
    has_one_label = scores.labels.ndim == 1
    matches = pairs.label_matches.weighted(counts)
    metrics["classes"] = class_table(task.label_names, matches, scores.thresholds)
    metrics |= averages(matches)
    if not has_one_label:
        # Where each row has one label, the micro average is the accuracy
        sums = Matches(matches.right.sum(), matches.true.sum(), matches.predicted.sum())
        metrics["micro"] = {
            "precision": float(sums.precision()),
            "recall": float(sums.recall()),
            "f1": float(sums.f1()),
        }
    if task.tree:
        parents = task.tree.parents
        names = [task.tree.name(parent) for parent in parents]
        metrics["parents"] = class_table(names, pairs.node_matches.weighted(counts).columns(parents))
    if has_one_label:
        metrics |= confusions(task.label_names, labels, predicted, counts)
    return metrics


def metric_values(task: Task, scores: Scores, rows: DrawnRows) -> dict[str, float]:
    """Return the value of each metric of the table; `rows` are those of the scores, drawn once."""
    if scores.rare_chance is not None:
        is_rare = scores.labels == rows.pairs.rare_label
        ranking = ranked_rows(class_counts(is_rare, -scores.rare_chance)[None])
    values = {}
    for metric in metrics_of(task):
        if metric.from_answers:
            value = metric.from_answers(rows)[0]
        elif metric.from_scores:
            value = metric.from_scores(scores).mean()
        else:
            value = metric.from_ranking(ranking, metric.precision)[0]
        values[metric.key] = float(value)
    return values


def averages(matches: Matches) -> dict[str, dict]:
    """Return the means of precision, recall and F1 over the classes, as they are, and weighted by support."""
    support = matches.true
    num_labels = max(support.sum(), 1)
    figures = {"precision": matches.precision(), "recall": matches.recall(), "f1": matches.f1()}
    macro = {}
    weighted = {}
    for name, values in figures.items():
        macro[name] = float(values.mean())
        weighted[name] = float((values * support).sum() / num_labels)
    return {"macro": macro, "weighted": weighted}


def confusions(names: list[str], labels: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> dict:
    """Return which class is taken for which: `confusion_matrix`, or of many classes `confusions`, a list of
    true class, predicted class and rows, the most frequent first. `labels` and `predicted` are different
    pairs, (num_distinct,), and `counts` says how many rows have each."""
    num_classes = len(names)
    if num_classes <= MAX_MATRIX_CLASSES:
        matrix = np.zeros((num_classes, num_classes), np.int64)
        matrix[labels, predicted] = counts
        return {"confusion_matrix": matrix.tolist()}
    wrong = np.flatnonzero(labels != predicted)
    most_frequent_first = wrong[np.argsort(-counts[wrong], kind="stable")]
    pairs = zip(
        labels[most_frequent_first].tolist(),
        predicted[most_frequent_first].tolist(),
        counts[most_frequent_first].tolist(),
        strict=True,
    )
    return {"confusions": [[names[label], names[answer], rows] for label, answer, rows in pairs]}


def metrics_in_training(task: Task, split: Split, results: np.ndarray) -> dict:
    """Return the metrics of a split; `results` are `task.row_results` of its rows, in their order. Chooses
    the thresholds that are best for these rows, but no temperature, which changes no decision."""
    if not task.has_labels:
        return task.measure(results)
    task.fit(split.labels, results)
    return measure(task, task.score(split.labels, results))
