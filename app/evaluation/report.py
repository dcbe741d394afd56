"""Metrics -> the printed report."""

from __future__ import annotations

from .metrics import MAX_CLASSES
from .text_table import short_label, text_table

SCORES = ("precision", "recall", "f1", "support")
# classes, and pairs of classes, in the report of many classes
SHOWN = 20


def render_report(metrics: dict, title: str) -> str:
    """Return the printed report, of `metrics` of `compute_metrics`: a table of classes, the averages, the
    confusion matrix.

    With more than `MAX_CLASSES` classes: the worst classes, and the pairs that are confused most. Labels are
    shortened.
    """
    classes, rows = metrics["classes"], metrics["rows"]
    many = len(classes) > MAX_CLASSES
    shown = _worst(classes) if many else classes
    averages = {f"{name} avg": metrics[name] | {"support": rows} for name in ("macro", "weighted")}
    heading = [f"The {len(shown)} worst of {len(classes):,} classes; all are in report.json"] if many else []
    figures = f"accuracy {metrics['accuracy']:.4f}   rows {rows:,}   loss {metrics['loss']:.4f}"
    table = text_table(
        ["", *SCORES], [_class_line(label, scores) for label, scores in (shown | averages).items()]
    )
    return "\n".join(
        [title, *heading, table, "", figures, "", *(_confusions if many else _confusion_matrix)(metrics)]
    )


def _class_line(label: str, scores: dict) -> list[str]:
    return [short_label(label), *(f"{scores[name]:.4f}" for name in SCORES[:3]), str(scores["support"])]


def _worst(classes: dict) -> dict:
    """Return the classes with the lowest F1 among those with rows, of equal ones those with the most rows
    first."""
    with_rows = [
        (scores["f1"], -scores["support"], label) for label, scores in classes.items() if scores["support"]
    ]
    return {label: classes[label] for _, _, label in sorted(with_rows)[:SHOWN]}


def _confusion_matrix(metrics: dict) -> list[str]:
    labels = list(map(short_label, metrics["classes"]))
    cells = ([label, *map(str, row)] for label, row in zip(labels, metrics["confusion_matrix"], strict=True))
    return ["Confusion matrix (rows: true class, columns: predicted)", text_table(["", *labels], cells)]


def _confusions(metrics: dict) -> list[str]:
    confusions = metrics["confusions"]
    if not confusions:
        return ["No class was taken for another."]
    pairs = (
        [short_label(true), short_label(predicted), str(rows)] for true, predicted, rows in confusions[:SHOWN]
    )
    count = min(SHOWN, len(confusions))
    return [
        f"The {count} most frequent of {len(confusions):,} confusions; all are in report.json",
        text_table(["true class", "predicted", "rows"], pairs),
    ]
