"""Evaluated rows and their metrics -> report.html, with the sections that an outcome adds."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...words import _, current_language, pgettext
from .charts import Axes, around
from .evaluated_rows import (
    EvaluatedRows,
    Group,
    groups_by_length,
    groups_by_reading,
    groups_by_seen,
    groups_by_unknown,
)

if TYPE_CHECKING:
    from jinja2 import Environment

# Characters
MAX_TEXT, MAX_LABEL = 200, 40
# Evaluations on dev up to which each is a point
FEW_POINTS = 15


@dataclass(frozen=True)
class PageContent:
    """What the page is about.

    `metrics` are those of report.json, `calibrated` the scores of the rows after calibration (None: there is
    none), `history` the evaluations on dev of metrics.jsonl, `data` the statistics of the data report, by
    split, `advice` what to do next, each with `sentence()`, `facts` values of the run by their names.
    """

    title: str
    rows: EvaluatedRows
    metrics: Mapping
    calibrated: Any | None = None
    history: list[dict] = field(default_factory=list)
    data: Mapping = field(default_factory=dict)
    advice: Sequence = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def visible(text: str, longest: int = MAX_TEXT) -> str:
    """Return untrusted text, cut, with control characters as code points."""
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


def page_environment(folder: Path) -> Environment:
    """Return the environment of the templates of pages, with their filters; `folder` has more templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader([Path(__file__).parent, folder])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"_": _, "pgettext": pgettext, "language": current_language}
    environment.filters["visible"] = visible
    environment.filters["label"] = lambda name: visible(name, MAX_LABEL)
    environment.filters["figure"] = lambda value: f"{value:.4f}"
    environment.filters["percent"] = lambda value: f"{value * 100:.1f} %"
    environment.filters["number"] = lambda value: f"{value:,}"
    return environment


def render_report_page(content: PageContent, template: Path, context: dict) -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere.

    `template` extends report_page.html.jinja. Of `context` every page needs `metric_names` in the
    order in which they are shown, the `titles` of its own sections, its `summary`, `baseline_names`,
    `beside_baselines` and `curves` (metrics), and `num_classes`.
    """
    page = {"content": content, "page_title": content.title, "metrics": content.metrics}
    page |= context | {"groups": row_groups(content.rows)}
    page["curves"] = training_curves(content.history, content.metrics.get("step"), context["curves"])
    own = dict(context["titles"])
    groups = own.pop("groups", _("Where it is right"))
    page["titles"] = {"what_next": _("What next?"), "headline": _("How good, and how sure")} | own
    page["titles"] |= {"curves": _("While training: dev"), "groups": groups}
    page["titles"] |= {"data": _("Data"), "facts": _("The run")}
    shown = {"what_next": content.advice, "examples": page.get("examples", True)}
    shown |= {"curves": page["curves"], "groups": page["groups"]}
    shown |= {"data": content.data, "facts": content.facts}
    page["links"] = [key for key in page["titles"] if shown.get(key, True)]
    return page_environment(template.parent).get_template(template.name).render(page)


def training_curves(history: list[dict], best_step: int | None, names: Sequence[str]) -> list[tuple]:
    """Return a chart for each metric of the evaluations on dev: its name, axes, line, the places of the
    evaluations where they are few, and that of the best checkpoint."""
    history = [line for line in history if line.get("split") == "dev"]
    steps = [line["step"] for line in history]
    charts = []
    for name in names if len(history) > 1 else ():
        values = [line[name] for line in history]
        axes = Axes(min(steps), max(steps), *around(values))
        best = next((line for line in reversed(history) if line["step"] == best_step), None)
        points = [(axes.x(step), axes.y(value)) for step, value in zip(steps, values, strict=True)]
        shown = points if len(points) <= FEW_POINTS else []
        place = best and (axes.x(best["step"]), axes.y(best[name]))
        charts.append((name, axes, axes.line(steps, values), shown, place))
    return charts


def row_groups(rows: EvaluatedRows) -> dict[str, list[Group]]:
    """Return groups of rows, to see where they are right, by what they are grouped by."""
    parts = [_("all of it"), _("all of it, in several windows"), _("a part")]
    seen = [_("new text"), _("near copy of a training text"), _("also in train")]
    groups = {
        _("by length in tokens"): groups_by_length(rows),
        _("by what was read of the text"): groups_by_reading(rows, parts),
        _("by share of unknown tokens"): groups_by_unknown(rows),
        _("by whether the text is a training text"): groups_by_seen(rows, seen),
    }
    return {name: members for name, members in groups.items() if len(members) > 1}
