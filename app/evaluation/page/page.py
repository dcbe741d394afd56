"""Evaluated rows and their metrics -> report.html."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..long_rows import NAMES
from ..measures.calibration_error import confidence_bins
from ..measures.row_scores import RowScores
from ..measures.selective import risk_coverage
from .charts import Axes, around
from .confusions import confused_pairs, confusion_matrix, errors_of_pairs
from .rows import EvaluatedRows, groups_by_length, groups_by_part, groups_by_seen, groups_by_unknown
from .words import words

if TYPE_CHECKING:
    from jinja2 import Environment

# Classes
MAX_IN_MATRIX = 30
# Bars
MAX_CLASSES = 40
# Characters
MAX_TEXT, MAX_LABEL = 200, 40
CURVES = ("loss", "accuracy", "macro_f1")


@dataclass(frozen=True)
class PageContent:
    """What the page is about.

    `metrics` are those of report.json, `calibrated` the scores of the rows after calibration (None: there is
    none), `history` the evaluations on dev of metrics.jsonl, `data` the statistics of the data report, by
    split.
    """

    title: str
    rows: EvaluatedRows
    metrics: Mapping
    calibrated: RowScores | None = None
    history: list[dict] = field(default_factory=list)
    data: Mapping = field(default_factory=dict)


def read_history(path: Path) -> list[dict]:
    """Return the evaluations in metrics.jsonl; a run without dev rows has none."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def visible(text: str, longest: int = MAX_TEXT) -> str:
    """Return the start of a text of a stranger: no character of it acts on the page, such ones become code
    points."""
    shown = "".join(_visible(character) for character in text[:longest])
    return shown + "…" if len(text) > longest else shown


def _visible(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return (
        f"‹U+{ord(character):04X}›"
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else character
    )


def page_environment() -> Environment:
    """Return the environment of the templates of pages, with their filters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader([Path(__file__).parent, Path(__file__).parents[1] / "multi_label"])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    environment.filters["label"] = lambda name: visible(name, MAX_LABEL)
    environment.filters["figure"] = lambda value: f"{value:.4f}"
    environment.filters["percent"] = lambda value: f"{value * 100:.1f} %"
    environment.filters["number"] = lambda value: f"{value:,}"
    return environment


def render_page(content: PageContent, language: str = "en") -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere.
    `language` is en or zh."""
    text = words(language)
    context = {
        "language": language,
        "t": text,
        "content": content,
        "page_title": content.title,
        "metrics": content.metrics,
    }
    context |= (
        _classes(content)
        | _confusions(content)
        | {"curves": training_curves(content.history, content.metrics.get("step"))}
        | _certainty(content)
        | row_groups(content.rows, text)
    )
    return page_environment().get_template("page.html.jinja").render(context)


def _classes(content: PageContent) -> dict:
    """Return the classes to show: all, or the worst of those that have rows."""
    classes = content.metrics["classes"]
    if len(classes) <= MAX_CLASSES:
        return {"classes": classes, "num_classes": len(classes)}
    with_rows = [
        (scores["f1"], -scores["support"], name) for name, scores in classes.items() if scores["support"]
    ]
    return {
        "classes": {name: classes[name] for _, _, name in sorted(with_rows)[:MAX_CLASSES]},
        "num_classes": len(classes),
    }


def _confusions(content: PageContent) -> dict:
    names, scores = content.rows.label_names, content.rows.scores
    matrix = confusion_matrix(scores, len(names)).tolist() if len(names) <= MAX_IN_MATRIX else None
    return {
        "names": names,
        "matrix": matrix,
        "pairs": [] if matrix else confused_pairs(scores, len(names)),
        "examples": errors_of_pairs(content.rows),
    }


def training_curves(history: list[dict], best_step: int | None, names: Sequence[str] = CURVES) -> list[tuple]:
    """Return a chart for each metric of the evaluations on dev: its name, axes, points and the place of the
    best checkpoint."""
    history = [line for line in history if line.get("split") == "dev"]
    steps = [line["step"] for line in history]
    charts = []
    for name in names if len(history) > 1 else ():
        values = [line[name] for line in history]
        axes = Axes(min(steps), max(steps), *around(values))
        best = next((line for line in reversed(history) if line["step"] == best_step), None)
        charts.append(
            (name, axes, axes.line(steps, values), best and (axes.x(best["step"]), axes.y(best[name])))
        )
    return charts


def _certainty(content: PageContent) -> dict:
    """Return the reliability diagram, before and after calibration, and the curve of risk and coverage."""
    scores = content.rows.scores
    final = content.calibrated or scores
    bins = {"raw": confidence_bins(scores.confidence, scores.correct)}
    if content.calibrated:
        bins["calibrated"] = confidence_bins(final.confidence, final.correct)
    _, coverage, risk = risk_coverage(final)
    axes = Axes(0, 1, *around(risk, from_zero=True))
    places = np.unique(np.searchsorted(coverage, np.linspace(0.02, 1, 150)).clip(max=len(coverage) - 1))
    return {
        "square": Axes(0, 1, 0, 1),
        "bins": bins,
        "risk_axes": axes,
        "risk": axes.line(coverage[places], risk[places]),
    }


def row_groups(rows: EvaluatedRows, text: dict[str, str]) -> dict:
    """Return groups of rows, to see where they are right; `text` are the words of the page."""
    groups = {
        "length": groups_by_length(rows),
        "part": groups_by_part(rows, [text[f"part_{name}"] for name in NAMES]),
        "unknown": groups_by_unknown(rows),
        "seen": groups_by_seen(rows, text["unseen_name"], text["seen_name"]),
    }
    return {"groups": {name: found for name, found in groups.items() if len(found) > 1}}
