"""Label sets and logits -> metrics, and the printed report."""

from __future__ import annotations

import numpy as np

from ..metrics import MAX_CLASSES
from ..text_table import short_label, text_table
from .decisions import LabelRule, describe_rule
from .row_sets import RowSets, decide_rows

SCORES = ("precision", "recall", "f1")
AVERAGES = ("micro", "macro", "weighted")
# Labels in the report of many
SHOWN = 20


def label_set_metrics(
    labels: np.ndarray, logits: np.ndarray, rule: LabelRule, label_names: list[str]
) -> dict:
    """Return the metrics of `row_set_metrics` for what a rule decides, with the threshold of each label."""
    return row_set_metrics(decide_rows(labels, logits, rule), label_names)


def row_set_metrics(rows: RowSets, label_names: list[str]) -> dict:
    """Return precision, recall, F1 and support of each label, averages, subset accuracy, Hamming loss and
    loss.

    `loss` is the mean binary cross entropy over rows and labels, without positive weights. A label that is
    never predicted has precision 0. `samples_f1` is the mean F1 of the rows; a row without labels that gets
    none has 1.
    """
    from sklearn.metrics import f1_score, hamming_loss, precision_recall_fscore_support

    labels, predicted = rows.labels.astype(np.uint8), rows.predicted.astype(np.uint8)
    by_label = precision_recall_fscore_support(labels, predicted, average=None, zero_division=0)
    metrics = {
        "rows": len(rows),
        "loss": float(rows.loss.mean()),
        "subset_accuracy": float(rows.correct.mean()),
        "hamming_loss": float(hamming_loss(labels, predicted)),
        "samples_f1": float(f1_score(labels, predicted, average="samples", zero_division=1)),
        "labels_per_row": float(labels.sum(axis=1, dtype=np.int64).mean()),
        "predicted_per_row": float(predicted.sum(axis=1, dtype=np.int64).mean()),
        "classes": {
            name: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(s)}
            for name, p, r, f, s in zip(label_names, *by_label, strict=True)
        },
    }
    for average in AVERAGES:
        scores = precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)[:3]
        metrics[average] = dict(zip(SCORES, map(float, scores), strict=True))
        metrics[f"{average}_f1"] = metrics[average]["f1"]
    if rows.rule is not None:
        for name, threshold in zip(label_names, rows.rule.thresholds, strict=True):
            metrics["classes"][name]["threshold"] = float(threshold)
    return metrics


def render_label_sets(metrics: dict, rule: LabelRule, title: str) -> str:
    """Return the printed report, of `metrics` of `label_set_metrics`: a table of labels, the averages,
    figures of rows.

    With more than `MAX_CLASSES` labels: those with the lowest F1. Names are shortened.
    """
    classes = metrics["classes"]
    many = len(classes) > MAX_CLASSES
    lines = [
        [
            short_label(name),
            *(f"{scores[key]:.4f}" for key in SCORES),
            str(scores["support"]),
            f"{scores['threshold']:.4f}",
        ]
        for name, scores in (_worst(classes) if many else classes).items()
    ]
    support = str(sum(scores["support"] for scores in classes.values()))
    lines += [
        [f"{average} avg", *(f"{metrics[average][key]:.4f}" for key in SCORES), support, ""]
        for average in AVERAGES
    ]
    heading = [f"The {SHOWN} worst of {len(classes):,} labels; all are in report.json"] if many else []
    figures = (
        f"subset accuracy {metrics['subset_accuracy']:.4f}   samples F1 {metrics['samples_f1']:.4f}   "
        f"Hamming loss {metrics['hamming_loss']:.4f}   loss {metrics['loss']:.4f}   rows {metrics['rows']:,}"
    )
    counts = (
        f"labels a row: {metrics['labels_per_row']:.2f} true, {metrics['predicted_per_row']:.2f} predicted"
    )
    table = text_table(["", *SCORES, "support", "threshold"], lines)
    return "\n".join([title, *heading, table, "", figures, counts, "", describe_rule(rule)])


def _worst(classes: dict) -> dict:
    """Return the labels with the lowest F1 among those with rows, of equal ones those with the most rows
    first."""
    with_rows = [
        (scores["f1"], -scores["support"], name) for name, scores in classes.items() if scores["support"]
    ]
    return {name: classes[name] for _, _, name in sorted(with_rows)[:SHOWN]}
