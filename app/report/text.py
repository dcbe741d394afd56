"""Metrics of a report -> the printed report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..data.tokens import TokenStore
from ..errors import listed
from ..tasks.task import Objective, Task
from ..text_table import columns_of, padded, short_label, text_table
from ..words import N_, _
from .confidence import confidence_bins, proportion_interval
from .metrics import BY_KEY, MAX_CLASSES, SCORES, worst_labels

MAX_SHOWN = 20  # labels, and pairs of classes, in the report of many
READINGS = {
    "whole": N_("read whole"),
    "several_windows": N_("read whole, in several windows"),
    "not_whole": N_("not read whole"),
}
UNFITTED = {
    "no_rows": N_("Probabilities are as the model gives them: no temperature was fitted on dev rows."),
    "few_rows": N_(
        "Probabilities are as the model gives them: {rows:,} dev rows are too few to fit a temperature."
    ),
    "no_better": N_(
        "Probabilities are as the model gives them: on {rows:,} dev rows no temperature lowers the loss of "
        "rows it was not fitted on."
    ),
}


def report_text(task: Objective, metrics: Mapping, start: Mapping, title: str) -> str:
    """Return the report as text; `start` are the metrics before the training, where they are measured."""
    if not task.has_labels:
        return masked_text(metrics, start, title)
    parts = ["\n".join([title, *label_table(task, metrics)])] if "classes" in metrics else [title]
    counted = _("rows {rows:,}").format(rows=metrics["rows"])
    figures = [
        counted if key == "rows" else f"{BY_KEY[key].name} {metrics[key]:.4f}" for key in task.headline
    ]
    if "near" in metrics:
        near = _("rows {rows:,}; {near:.1%} at most {near_distance:.4g} off, half a standard deviation")
        parts[0] += "\n" + near.format(**metrics)
    else:
        parts.append("   ".join(figures))
    if "labels_per_row" in metrics:
        per_row = _("labels a row: {true:.2f} true, {predicted:.2f} predicted")
        values = {"true": metrics["labels_per_row"], "predicted": metrics["predicted_per_row"]}
        parts[-1] += "\n" + per_row.format(**values)
    if "rare_threshold" in metrics:
        parts.append(rare_line(metrics))
    if rule := task.label_rule():
        parts.append(threshold_line(rule, task.labels_without_rows))
    blocks = confusion_lines(metrics), never_predicted(metrics), interval_lines(task, metrics)
    parts += ["\n".join(lines) for lines in blocks if lines]
    if "calibration" in metrics or "no_calibration" in metrics:
        parts.append(calibration_line(metrics))
    if "parents" in metrics:
        parts.append(parents_table(metrics["parents"]))
    for key, render in (("long_texts", cost_of_length_text), ("copies_in_train", copies_text)):
        if key in metrics:
            parts.append(render(metrics[key], task))
    return "\n\n".join(parts)


def masked_text(metrics: Mapping, start: Mapping, title: str) -> str:
    """Return perplexity and accuracy of the same masked tokens before and after the training."""
    about = _("{tokens:,} masked tokens of {rows:,} rows, the same before and after")
    lines = [title, about.format(tokens=metrics["targets"], rows=metrics["rows"])]
    for key in ("perplexity", "accuracy", "loss"):
        before = _("{value:10.4f} before ").format(value=start[key]) if key in start else ""
        after = _("{value:10.4f} after").format(value=metrics[key])
        lines.append(f"  {padded(BY_KEY[key].name, 10)} {before}{after}")
    return "\n".join(lines)


def label_table(task: Task, metrics: Mapping) -> list[str]:
    """Return a table of labels and averages; of more than `MAX_CLASSES` labels a heading and those with the
    lowest F1."""
    classes = metrics["classes"]
    is_long, shown = len(classes) > MAX_CLASSES, classes
    # Of several labels a row, the rows of the averages are labels
    support = sum(scores["support"] for scores in classes.values())
    names = {"micro": _("micro avg"), "macro": _("macro avg"), "weighted": _("weighted avg")}
    heading = _("The {shown} worst of {all:,} classes; all are in report.json")
    if "micro" in metrics:
        heading = _("The {shown} worst of {all:,} labels; all are in report.json")
    if is_long:
        shown = worst_labels(classes, MAX_SHOWN)
    averages = {names[name]: metrics[name] | {"support": support} for name in task.averages}
    table = score_table(shown | averages)
    return [heading.format(shown=len(shown), all=len(classes)), table] if is_long else [table]


def parents_table(parents: Mapping) -> str:
    """Return a table of what is above the labels of a hierarchy."""
    if len(parents) <= MAX_CLASSES:
        return score_table(parents)
    shown = worst_labels(parents, MAX_SHOWN)
    heading = _("The {shown} worst of {all:,} classes; all are in report.json")
    return heading.format(shown=len(shown), all=len(parents)) + "\n" + score_table(shown)


def score_table(rows: Mapping) -> str:
    """Return a table of precision, recall, F1, support and, where there are any, thresholds, by name."""
    has_thresholds = any("threshold" in scores for scores in rows.values())
    lines = [
        [
            short_label(name),
            *(f"{scores[key]:.4f}" for key in SCORES),
            str(scores["support"]),
            *([f"{scores['threshold']:.4f}" if "threshold" in scores else ""] if has_thresholds else []),
        ]
        for name, scores in rows.items()
    ]
    header = ["", _("precision"), _("recall"), _("f1"), _("support")]
    return text_table([*header, *([_("threshold")] if has_thresholds else [])], lines)


def threshold_line(rule: Mapping, labels_without_rows: int) -> str:
    """Return how the labels of a row are chosen."""
    if rule["chosen_on"] is None:
        default = _("Threshold {threshold} for every label; none was chosen on dev rows")
        return default.format(threshold=0.5)
    chosen = _("Threshold of each label: the best F1 on {rows:,} rows of {split}")
    chosen = chosen.format(rows=rule["rows"], split=rule["chosen_on"])
    if labels_without_rows:
        absent = _("; {labels:,} labels without a row there have {threshold}")
        chosen += absent.format(labels=labels_without_rows, threshold=0.5)
    return chosen


def rare_line(metrics: Mapping) -> str:
    """Return from which probability on the rarer of two classes is the answer."""
    return _(
        "{label} is the answer from a probability of {threshold:.4f} on, which has its best F1 on dev"
    ).format(label=short_label(metrics["rare_class"]), threshold=metrics["rare_threshold"])


def confusion_lines(metrics: Mapping) -> list[str]:
    """Return the confusion matrix, or of many classes the pairs that are confused most."""
    if "confusion_matrix" in metrics:
        labels = list(map(short_label, metrics["classes"]))
        cells = (
            [label, *map(str, row)] for label, row in zip(labels, metrics["confusion_matrix"], strict=True)
        )
        return [
            _("Confusion matrix (rows: true class, columns: predicted)"),
            text_table(["", *labels], cells),
        ]
    if "confusions" not in metrics:
        return []
    pairs = metrics["confusions"]
    if not pairs:
        return [_("No class was taken for another.")]
    shown = [[short_label(label), short_label(other), str(rows)] for label, other, rows in pairs[:MAX_SHOWN]]
    heading = _("The {shown} most frequent of {all:,} confusions; all are in report.json")
    names = [_("true class"), _("predicted"), _("rows")]
    return [heading.format(shown=len(shown), all=len(pairs)), text_table(names, shown)]


def never_predicted(metrics: Mapping) -> list[str]:
    """Return a line that names the classes of rows that no row is predicted as, if there are any."""
    if "confusion_matrix" not in metrics and "confusions" not in metrics:
        return []
    classes = metrics["classes"]
    predicted = {name for name, scores in classes.items() if scores["recall"]}
    predicted |= {other for _label, other, _rows in metrics.get("confusions", ())}
    for line in metrics.get("confusion_matrix", ()):
        predicted |= {name for name, rows in zip(classes, line, strict=True) if rows}
    never = [name for name, scores in classes.items() if scores["support"] and name not in predicted]
    return [_("Never predicted: {names}").format(names=listed(never))] if never else []


def interval_lines(task: Task, metrics: Mapping) -> list[str]:
    """Return each metric with its interval, and the baselines with some of them."""
    lines = [_("95 % intervals (bootstrap over the rows)")]
    width = max([17, *(columns_of(BY_KEY[key].name) for key in metrics["intervals"])])
    for key, (low, high) in metrics["intervals"].items():
        ends = _("{low:.4f} to {high:.4f}").format(low=low, high=high)
        lines.append(f"  {padded(BY_KEY[key].name, width)} {metrics[key]:.4f}   {ends}")
    for baseline, values in metrics.get("baselines", {}).items():
        is_same = values["rows"] == metrics["rows"]
        of_rows = "" if is_same else _(" (on {rows:,} rows)").format(rows=values["rows"])
        # Of numbers, those in their own unit too
        keys = [*(key for key in ("rmse", "mae") if key in values), *task.beside_baselines]
        beside = ", ".join(f"{BY_KEY[key].name} {values[key]:.4f}" for key in keys)
        lines.append(f"  {_(baseline)}: {beside}{of_rows}")
    return lines


def calibration_line(metrics: Mapping) -> str:
    """Return what the temperature does to the probabilities, or why there is none."""
    if "calibration" not in metrics:
        reason = metrics.get("no_calibration", {"why": "no_rows", "rows": 0})
        text = UNFITTED[reason["why"]]
        return _(text).format(rows=reason["rows"])
    calibration = metrics["calibration"]
    is_same = calibration["measured_on"] == calibration["fitted_on"]
    return _(
        "Calibration: temperature {temperature:.3f}, fitted on {rows:,} rows of {fitted_on}; on "
        "{measured_on}{same}: loss {before[loss]:.4f} to {after[loss]:.4f}, calibration error "
        "{before[ece]:.4f} to {after[ece]:.4f}"
    ).format(same=_(", the rows it was fitted on") if is_same else "", **calibration)


def calibration_effect(task: Task, labels: np.ndarray, logits: np.ndarray, measured_on: str) -> dict:
    """Return what the fitted temperature does to rows, as report.json has it; empty without one."""
    if not task.fitted:
        return {}
    effect: dict = {"measured_on": measured_on}
    for when, calibrated in (("before", False), ("after", True)):
        scores = task.score(labels, logits, calibrated=calibrated)
        error = confidence_bins(scores.confidence, scores.correct).error
        effect[when] = {"loss": float(scores.loss.mean()), "ece": error}
    return effect


def row_readings(store: TokenStore, rows: np.ndarray) -> np.ndarray:
    """Return how each of the rows, (num_rows,) ids, was read: its index in `READINGS`, (num_rows,) int64."""
    windows = store.first_windows[rows + 1] - store.first_windows[rows] if store.has_windows else None
    return readings_of(store.cut[rows], windows)


def readings_of(cut: np.ndarray, windows: np.ndarray | None) -> np.ndarray:
    """Return `row_readings` of whether tokens were left out, `cut`, and the `windows` of each row, if any."""
    several = np.zeros(len(cut), dtype=bool) if windows is None else windows > 1
    return np.where(cut > 0, 2, several.astype(np.int64))


def cost_of_length(readings: np.ndarray, right: np.ndarray, way: str, max_length: int) -> dict:
    """Return rows, accuracy and its 95 % Clopper-Pearson interval by the names of `READINGS`; nothing where
    all rows fit. `readings` (num_rows,) of `row_readings`; `right` (num_rows,) bool; the settings."""
    if not readings.any():
        return {}
    accuracies: dict = {"long": way, "max_length": max_length}
    for index, name in enumerate(READINGS):
        of_reading = right[readings == index]
        if len(of_reading):
            count, total = int(of_reading.sum()), len(of_reading)
            interval = list(proportion_interval(count, total))
            accuracies[name] = {"rows": total, "accuracy": count / total, "interval": interval}
    return accuracies


def cost_of_length_text(accuracies: Mapping, task: Task) -> str:
    """Return lines for people, of `cost_of_length`."""
    heading = _("{metric} by what was read (data.long {long}, data.max_length {max_length})")
    lines = [heading.format(metric=BY_KEY[task.right_share].title, **accuracies)]
    for key, name in READINGS.items():
        if key in accuracies:
            of_rows, (low, high) = accuracies[key], accuracies[key]["interval"]
            line = _("  {reading} {accuracy:.4f}   {low:.4f} to {high:.4f}   {rows:,} rows")
            values = {"accuracy": of_rows["accuracy"], "rows": of_rows["rows"], "low": low, "high": high}
            lines.append(line.format(reading=padded(_(name), 30), **values))
    return "\n".join(lines)


def copies_text(copies: Mapping, task: Task) -> str:
    """Return a line for people, of `copies_in_train` in report.json."""
    without = copies["accuracy_without"]
    return _(
        "{rows:,} rows are copies or near copies of training texts; {metric} without them {without}, with "
        "them {accuracy:.4f}"
    ).format(
        rows=copies["rows"],
        metric=BY_KEY[task.right_share].name,
        without=_("unknown") if without is None else f"{without:.4f}",
        accuracy=copies["accuracy"],
    )
