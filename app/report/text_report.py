"""The printed report, which is also report.txt: metrics with intervals, tables of classes, and confusions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..tasks.task import Task
from ..text_table import columns_of
from ..words import _
from .class_tables import MAX_LISTED, MAX_TABLE_CLASSES, missing_classes_sentence, worst_classes
from .metrics import BY_KEY, RIGHT, metrics_of
from .paired_differences import verdicts
from .row_groups import READINGS
from .split_gap import sentence_on_dev
from .start_of_training import sentence_on_start
from .template_environment import short_table, template_environment


def report_text(task: Task, metrics: Mapping, start: Mapping, title: str, other_seeds: str = "") -> str:
    """Return the report as text; `start` are the metrics before the training, where they are measured.
    `other_seeds` is the command that says how far another seed moves the figures of a run."""
    classes = metrics.get("classes", {})
    shown_classes = worst_classes(classes, MAX_LISTED, MAX_TABLE_CLASSES)
    by_key = dict(BY_KEY)
    for metric in metrics_of(task):
        by_key[metric.key] = metric
    right = None
    if task.has_labels:
        right = BY_KEY[RIGHT[task.answer_column]]
    template = template_environment(autoescape=False).get_template("report.txt.jinja")
    text = template.render(
        task=task,
        by_key=by_key,
        metrics=metrics,
        start=start,
        title=title,
        other_seeds=other_seeds,
        score_table=score_table,
        classes=shown_classes,
        rows_of_table={**shown_classes, **average_rows(metrics, classes)},
        parents=worst_classes(metrics.get("parents", {}), MAX_LISTED, MAX_TABLE_CLASSES),
        matrix=matrix_rows(metrics, classes),
        labels=["", *classes],
        no_rows=missing_classes_sentence(classes),
        pairs=metrics.get("confusions", ())[:MAX_LISTED],
        width=name_width(by_key[key].name for key in metrics.get("intervals", ())),
        verdicts=verdicts(task, metrics),
        dev_is_better=sentence_on_dev(metrics),
        start_on_dev=sentence_on_start(metrics),
        right=right,
        readings=READINGS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def name_width(names: Iterable[str]) -> int:
    """Return the columns for the names of metrics that stand below each other. There is always room for the
    English name of the calibration error, the last of them, so that short names in both languages have their
    figures in the same column."""
    return max(map(columns_of, [*names, BY_KEY["ece"].english]))


def average_rows(metrics: Mapping, classes: Mapping) -> dict[str, dict]:
    """Return the rows of the table of classes that are averages, by their names."""
    # Where rows have several labels, the support of an average is a number of labels
    support = sum(figures["support"] for figures in classes.values())
    names = {"micro": _("micro avg"), "macro": _("macro avg"), "weighted": _("weighted avg")}
    rows = {}
    for key, name in names.items():
        if key in metrics:
            rows[name] = {**metrics[key], "support": support}
    return rows


def matrix_rows(metrics: Mapping, classes: Mapping) -> list[list]:
    """Return the rows of the confusion matrix, each after the name of its class; none of many classes."""
    if "confusion_matrix" not in metrics:
        return []
    matrix = metrics["confusion_matrix"]
    return [[name, *counts] for name, counts in zip(classes, matrix, strict=True)]


def score_table(rows: Mapping[str, Mapping]) -> str:
    """Return a table of precision, recall and other figures of classes, by their names."""
    headings = {"precision": _("precision"), "recall": _("recall"), "f1": _("f1"), "support": _("support")}
    if any("threshold" in figures for figures in rows.values()):
        headings["threshold"] = _("threshold")
    table = []
    for name, figures in rows.items():
        cells = [score_cell(figures.get(key, "")) for key in headings]
        table.append([name, *cells])
    return short_table(["", *headings.values()], table)


def score_cell(value: float | str) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)
