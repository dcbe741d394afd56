"""Metrics of a report -> the printed report; and what all templates have: texts of strangers made visible."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data.tokens import TokenStore
from ..tasks.task import Task
from ..text_table import columns_of, padded, short_label, text_table
from ..words import N_, _, current_language, pgettext
from .confidence import calibration_error, proportion_interval
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

    options = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    loader = FileSystemLoader([TEMPLATES, folder])
    environment = Environment(loader=loader, autoescape=autoescape, **options)
    environment.globals |= {"_": _, "pgettext": pgettext, "language": current_language, "by_key": BY_KEY}
    environment.filters |= {
        "visible": visible,
        "label": lambda name: visible(name, MAX_LABEL),
        "figure": "{:.4f}".format,
        "percent": lambda value: f"{value * 100:.1f} %",
        "number": "{:,}".format,
        "short": short_label,
        "padded": padded,
        "table": short_table,
    }
    return environment


def report_text(task: Task, metrics: Mapping, start: Mapping, title: str) -> str:
    """Return the report as text; `start` are the metrics before the training, where they are measured."""
    classes, matrix = metrics.get("classes", {}), metrics.get("confusion_matrix")
    # Of several labels a row, the rows of the averages are labels
    support = {"support": sum(scores["support"] for scores in classes.values())}
    names = {"micro": _("micro avg"), "macro": _("macro avg"), "weighted": _("weighted avg")}
    averages = {names[name]: metrics[name] | support for name in names if name in metrics}
    shown = worst_labels(classes, MAX_SHOWN, MAX_CLASSES)
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
        matrix=matrix and [[name, *row] for name, row in zip(classes, matrix, strict=True)],
        labels=["", *classes],
        pairs=metrics.get("confusions", ())[:MAX_SHOWN],
        width=max([17, *(columns_of(by_key[key].name) for key in metrics.get("intervals", ()))]),
        right=BY_KEY[RIGHT[task.label_column]] if task.has_labels else None,
        readings=READINGS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def short_table(header: Sequence[str], rows: Sequence[Sequence]) -> str:
    short = ([short_label(str(cell)) for cell in row] for row in [header, *rows])
    return text_table(next(short), short)


def score_table(rows: Mapping) -> str:
    columns = {"precision": _("precision"), "recall": _("recall"), "f1": _("f1"), "support": _("support")}
    if any("threshold" in scores for scores in rows.values()):
        columns["threshold"] = _("threshold")

    def cells(scores: Mapping) -> list[str]:
        values = (scores.get(key, "") for key in columns)
        return [f"{value:.4f}" if isinstance(value, float) else value for value in values]

    return short_table(["", *columns.values()], [[name, *cells(of)] for name, of in rows.items()])


def calibration_effect(task: Task, labels: np.ndarray, logits: np.ndarray, measured_on: str) -> dict:
    """Return what the fitted temperature does to rows, as report.json has it; empty without one."""
    effect: dict = {"measured_on": measured_on} if task.fitted else {}
    for when, calibrated in (("before", False), ("after", True)) if task.fitted else ():
        scores = task.score(labels, logits, calibrated=calibrated)
        error = calibration_error(scores.confidence, scores.correct)
        effect[when] = {"loss": float(scores.loss.mean()), "ece": error}
    return effect


def row_readings(store: TokenStore, rows: np.ndarray) -> np.ndarray:
    """Return how each of the rows, (num_rows,) ids, was read: its index in `READINGS`, (num_rows,) int64."""
    windows = store.first_windows[rows + 1] - store.first_windows[rows] if store.has_windows else 1
    return readings_of(store.cut[rows], windows)


def readings_of(cut: np.ndarray, windows: np.ndarray | int) -> np.ndarray:
    """Return `row_readings` of whether tokens were left out, `cut`, and the `windows` of each row."""
    return np.where(cut > 0, 2, np.greater(windows, 1))


def cost_of_length(readings: np.ndarray, right: np.ndarray, way: str, max_length: int) -> dict:
    """Return `right_by_group` of `row_readings`, and the settings; nothing where all rows fit."""
    if not readings.any():
        return {}
    return {"long": way, "max_length": max_length} | right_by_group(list(READINGS), readings, right)


def right_by_group(names: Sequence[str], groups: np.ndarray, right: np.ndarray) -> dict[str, dict]:
    """Return rows, accuracy and its 95 % Clopper-Pearson interval of each group that has rows, by its name;
    `groups`, (num_rows,), are positions in `names`."""
    found = {}
    for group in np.unique(groups).tolist():
        part = right[groups == group]
        interval = list(proportion_interval(int(part.sum()), len(part)))
        found[names[group]] = {"rows": len(part), "accuracy": float(part.mean()), "interval": interval}
    return found
