"""Metrics of labels -> the printed report."""

from __future__ import annotations

from ..evaluation.text_table import short_label, text_table
from .label_metrics import MAX_CLASSES, MULTI_LABEL_AVERAGES, SCORES, worst_labels
from .metrics import BY_KEY

# Labels, and pairs of classes, in the report of many
MAX_SHOWN = 20


def label_table(metrics: dict, noun: str, averages: tuple[str, ...], support: int) -> list[str]:
    """Return a heading where there are more than `MAX_CLASSES` labels, and a table of labels and averages.

    Of many labels the table has those with the lowest F1. `noun` is what labels are called, `support` what
    the averages have in the column of rows. Labels are shortened.
    """
    classes = metrics["classes"]
    is_long = len(classes) > MAX_CLASSES
    shown = worst_labels(classes, MAX_SHOWN) if is_long else classes
    has_thresholds = any("threshold" in scores for scores in classes.values())
    rows = shown | {f"{name} avg": metrics[name] | {"support": support} for name in averages}
    lines = [
        [
            short_label(name),
            *(f"{scores[key]:.4f}" for key in SCORES),
            str(scores["support"]),
            *([_threshold(scores)] if has_thresholds else []),
        ]
        for name, scores in rows.items()
    ]
    header = ["", *SCORES, "support", *(["threshold"] if has_thresholds else [])]
    heading = (
        [f"The {len(shown)} worst of {len(classes):,} {noun}; all are in report.json"] if is_long else []
    )
    return [*heading, text_table(header, lines)]


def _threshold(scores: dict) -> str:
    return f"{scores['threshold']:.4f}" if "threshold" in scores else ""


def multi_label_lines(metrics: dict, rule: str) -> list[str]:
    """Return the table of labels, the metrics of rows, and the `rule` by which labels are chosen."""
    support = sum(scores["support"] for scores in metrics["classes"].values())
    shown = ("subset_accuracy", "samples_f1", "hamming_loss", "loss")
    values = [f"{BY_KEY[key].english} {metrics[key]:.4f}" for key in shown]
    per_row = f"{metrics['labels_per_row']:.2f} true, {metrics['predicted_per_row']:.2f} predicted"
    return [
        *label_table(metrics, "labels", MULTI_LABEL_AVERAGES, support),
        "",
        "   ".join([*values, f"rows {metrics['rows']:,}"]),
        f"labels a row: {per_row}",
        "",
        rule,
    ]


def confusion_lines(metrics: dict) -> list[str]:
    """Return the confusion matrix, or of many classes the pairs that are confused most."""
    if "confusion_matrix" in metrics:
        labels = list(map(short_label, metrics["classes"]))
        cells = (
            [label, *map(str, row)] for label, row in zip(labels, metrics["confusion_matrix"], strict=True)
        )
        return ["Confusion matrix (rows: true class, columns: predicted)", text_table(["", *labels], cells)]
    pairs = metrics["confusions"]
    if not pairs:
        return ["No class was taken for another."]
    shown = [[short_label(label), short_label(other), str(rows)] for label, other, rows in pairs[:MAX_SHOWN]]
    heading = f"The {len(shown)} most frequent of {len(pairs):,} confusions; all are in report.json"
    return [heading, text_table(["true class", "predicted", "rows"], shown)]


def interval_lines(metrics: dict, beside_baselines: tuple[str, ...]) -> str:
    """Return each metric with its interval, and the baselines with the metrics `beside_baselines`."""
    lines = ["95 % intervals (bootstrap over the rows)"]
    width = max([17, *(len(BY_KEY[key].english) for key in metrics["intervals"])])
    for key, (low, high) in metrics["intervals"].items():
        lines.append(f"  {BY_KEY[key].english:{width}} {metrics[key]:.4f}   {low:.4f} to {high:.4f}")
    for baseline, values in metrics.get("baselines", {}).items():
        of_rows = "" if values["rows"] == metrics["rows"] else f" (on {values['rows']:,} rows)"
        shown = ", ".join(f"{BY_KEY[key].english} {values[key]:.4f}" for key in beside_baselines)
        lines.append(f"  {baseline}: {shown}{of_rows}")
    return "\n".join(lines)
