"""Metrics of a report -> the printed report; and what all templates have: texts of strangers made visible."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data.tokens import TokenStore
from ..errors import listed
from ..tasks.task import Task
from ..text_table import columns_of, padded, short_label, text_table
from ..words import N_, _, current_language, pgettext
from .confidence import confidence_bins, proportion_interval
from .metrics import BY_KEY, MAX_CLASSES, RIGHT, metrics_of, worst_labels

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MAX_TEXT, MAX_LABEL = 200, 40  # characters
MAX_SHOWN = 20  # labels, and pairs of classes, in the report of many
READINGS = {
    "whole": N_("read whole"),
    "several_windows": N_("read whole, in several windows"),
    "not_whole": N_("not read whole"),
}


def visible(text: str, longest: int = MAX_TEXT) -> str:
    """Return untrusted text, cut, with control characters as code points."""

    def shown(character: str) -> str:
        if character in "\n\r\t":
            return " "
        is_hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        return f"‹U+{ord(character):04X}›" if is_hidden else character

    return "".join(map(shown, text[:longest])) + "…" * (len(text) > longest)


def page_environment(folder: Path = TEMPLATES, autoescape: bool = True) -> Environment:
    """Return the environment of the templates, with their filters; `folder` has more templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader([TEMPLATES, folder])
    environment = Environment(
        loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"_": _, "pgettext": pgettext, "language": current_language, "by_key": BY_KEY}
    environment.filters |= {
        "visible": visible,
        "label": lambda name: visible(name, MAX_LABEL),
        "figure": "{:.4f}".format,
        "percent": lambda value: f"{value * 100:.1f} %",
        "number": "{:,}".format,
        "short": short_label,
        "padded": padded,
        "table": text_table,
        "listed": listed,
    }
    return environment


def report_text(task: Task, metrics: Mapping, start: Mapping, title: str) -> str:
    """Return the report as text; `start` are the metrics before the training, where they are measured."""
    classes, matrix = metrics.get("classes", {}), metrics.get("confusion_matrix")
    # Of several labels a row, the rows of the averages are labels
    support = {"support": sum(scores["support"] for scores in classes.values())}
    names = {"micro": _("micro avg"), "macro": _("macro avg"), "weighted": _("weighted avg")}
    averages = {names[name]: metrics[name] | support for name in names if name in metrics}
    labels, shown = list(map(short_label, classes)), worst_labels(classes, MAX_SHOWN, MAX_CLASSES)
    pairs = metrics.get("confusions", ())[:MAX_SHOWN]
    by_key = BY_KEY | {metric.key: metric for metric in metrics_of(task)}
    template = page_environment(autoescape=False).get_template("report.txt.jinja")
    text = template.render(
        task=task,
        by_key=by_key,
        metrics=metrics,
        start=start,
        title=title,
        score_table=score_table,
        classes=shown,
        rows_of_table=shown | averages,
        parents=worst_labels(metrics.get("parents", {}), MAX_SHOWN, MAX_CLASSES),
        matrix=matrix and [[name, *map(str, row)] for name, row in zip(labels, matrix, strict=True)],
        labels=["", *labels],
        pairs=[[short_label(label), short_label(other), str(rows)] for label, other, rows in pairs],
        never_predicted=never_predicted(metrics),
        width=max([17, *(columns_of(by_key[key].name) for key in metrics.get("intervals", ()))]),
        right=BY_KEY[RIGHT[task.label_column]] if task.has_labels else None,
        readings=READINGS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def score_table(rows: Mapping) -> str:
    """Return a table of precision, recall, F1, support and, where there are any, thresholds, by name."""
    columns = {"precision": _("precision"), "recall": _("recall"), "f1": _("f1"), "support": _("support")}
    if any("threshold" in scores for scores in rows.values()):
        columns["threshold"] = _("threshold")

    def cell(value: float | str) -> str:
        return f"{value:.4f}" if isinstance(value, float) else str(value)

    cells = ([short_label(name), *(cell(of.get(key, "")) for key in columns)] for name, of in rows.items())
    return text_table(["", *columns.values()], cells)


def never_predicted(metrics: Mapping) -> list[str]:
    """Return the classes of rows that no row is predicted as."""
    classes, matrix = metrics.get("classes", {}), metrics.get("confusion_matrix", ())
    predicted = {name for name, scores in classes.items() if scores["recall"]}
    predicted |= {other for _label, other, _rows in metrics.get("confusions", ())}
    predicted |= {name for line in matrix for name, rows in zip(classes, line, strict=True) if rows}
    is_known = "confusions" in metrics or "confusion_matrix" in metrics
    return [name for name in classes if is_known and classes[name]["support"] and name not in predicted]


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
    found: dict = {"long": way, "max_length": max_length}
    for index, name in enumerate(READINGS):
        rows, count = int((readings == index).sum()), int(right[readings == index].sum())
        if rows:
            interval = list(proportion_interval(count, rows))
            found[name] = {"rows": rows, "accuracy": count / rows, "interval": interval}
    return found if readings.any() else {}
