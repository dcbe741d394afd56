"""report.html: one file to look at, with everything that is known about a model on labelled rows."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..tasks.task import Scores, Task
from ..tasks.tree import Tree
from ..words import _
from .confidence import NUM_BINS, confidence_bins, proportion_interval, risk_coverage
from .metrics import best_baseline, confusions, metrics_of, worst_labels
from .text import page_environment, row_readings

MAX_POINTS = 300  # of a line
LENGTH_BINS = 6
UNKNOWN_EDGES = (0.0, 0.02, 0.1)  # shares of unknown tokens; the last bin has no upper edge
FEW_POINTS = 15  # evaluations on dev up to which each is a point
MAX_IN_MATRIX = 30  # classes
MAX_SHOWN = {"label": 40, "labels": 200}  # classes, and labels of which a row has several
MAX_PAIRS, MAX_LISTED = 20, 50  # confusions, with examples and without
MAX_EXAMPLES, MAX_ERRORS = 3, 20
MIN_BIN = 30  # rows of a bin of the reliability diagram; of fewer, it would show chance


@dataclass(frozen=True)
class PageContent:
    """What the page is about; arrays are (num_rows,), None where it is not known.

    `metrics` are those of report.json, `calibrated` the scores after calibration. `text` and `where` return
    text and place of the row at a position. `lengths` are in tokens, `unknown` shares of unknown tokens,
    `seen` whether the text is a training text: 0 no, 1 nearly, 2 exactly; `readings` what was read of it
    (`row_readings`). `history` are the evaluations on dev of metrics.jsonl, `data` the statistics of the data
    report, by split, `advice` what to do next, each with `sentence()`, `facts` values of the run by name.
    """

    title: str
    task: Task
    scores: Scores
    metrics: Mapping
    text: Callable[[int], str]
    where: Callable[[int], str]
    calibrated: Scores | None = None
    lengths: np.ndarray | None = None
    unknown: np.ndarray | None = None
    seen: np.ndarray | None = None
    readings: np.ndarray | None = None
    history: list[dict] = field(default_factory=list)
    data: Mapping = field(default_factory=dict)
    advice: Sequence = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def row(self, at: int, answer: Callable = str) -> dict:
        """Return what the page shows of a row; `answer` makes what people see of labels."""
        found = {"text": self.text(at), "where": self.where(at)}
        true, predicted = answer(self.scores.labels[at]), answer(self.scores.predicted[at])
        return found | {"true": true, "predicted": predicted}


def render_page(content: PageContent) -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere."""
    task, metrics = content.task, content.metrics
    names = {metric.key: metric.title for metric in metrics_of(task) if metric.headline}
    most = MAX_SHOWN.get(task.label_column, 0)
    sections = {"label": class_sections, "labels": list_sections, "score": number_sections}
    template = page_environment().get_template("report.html.jinja")
    return template.render(
        content=content,
        page_title=content.title,
        metrics=metrics,
        kind=task.label_column,
        metric_names=names,
        main=task.beside_baselines[0],
        best_baseline=best_baseline(metrics, task.beside_baselines[0]),
        right=int(content.scores.correct.sum()),
        classes=worst_labels(metrics.get("classes", {}), most, most),
        tree=folded(task.tree, metrics) if task.tree else None,
        curves=training_curves(content, [key for key in task.log_metrics if key in names]),
        groups=row_groups(content),
        **sections[task.label_column](content),
    )


def class_sections(content: PageContent) -> dict:
    """Return what the page shows of one label a row: confusions, errors, the reliability diagram, before and
    after calibration, and the curve of risk and coverage."""
    scores, names, pairs = content.scores, content.task.label_names, confusions(content.metrics)
    examples = []
    for label, predicted, rows in pairs[:MAX_PAIRS]:
        is_pair = (scores.labels == names.index(label)) & (scores.predicted == names.index(predicted))
        of_pair = np.flatnonzero(is_pair)
        surest = of_pair[np.argsort(-scores.confidence[of_pair], kind="stable")[:MAX_EXAMPLES]].tolist()
        shown = [content.row(at) | {"confidence": float(scores.confidence[at])} for at in surest]
        examples.append((label, predicted, rows, shown))
    num_bins = max(1, min(NUM_BINS, len(scores) // MIN_BIN))
    of_diagram = {"raw": scores} | ({"calibrated": content.calibrated} if content.calibrated else {})
    final = content.calibrated or scores
    _confidence, coverage, risk = risk_coverage(final.confidence, final.correct)
    axes = Axes(0, 1, *around(risk, from_zero=True))
    places = np.unique(np.searchsorted(coverage, np.linspace(0.02, 1, 150)).clip(max=len(coverage) - 1))
    return {
        "matrix": content.metrics["confusion_matrix"] if len(names) <= MAX_IN_MATRIX else None,
        "pairs": pairs[:MAX_LISTED],
        "examples": examples,
        "square": Axes(0, 1, 0, 1),
        "bins": {key: confidence_bins(of.confidence, of.correct, num_bins) for key, of in of_diagram.items()},
        "risk_axes": axes,
        "risk": axes.line(coverage[places], risk[places]),
    }


def list_sections(content: PageContent) -> dict:
    """Return what the page shows of several labels a row: the rows with the most wrong labels, of these the
    largest loss first."""
    scores, answer = content.scores, content.task.answer
    order = np.lexsort((-scores.loss, -scores.num_wrong))[:MAX_ERRORS]
    errors = [
        content.row(at, answer) | {"num_wrong": int(scores.num_wrong[at])}
        for at in order[scores.num_wrong[order] > 0].tolist()
    ]
    return {"errors": errors, "rule": content.task.state()}


def number_sections(content: PageContent) -> dict:
    """Return what the page shows of one number a row: predicted against true, and the worst rows."""
    scores, cell = content.scores, content.task.cell
    axes = Axes(*around(scores.labels), *around(np.r_[scores.predicted, scores.labels]))
    step = max(1, len(scores) // MAX_POINTS)
    shown = zip(scores.labels[::step], scores.predicted[::step], strict=True)
    worst = np.argsort(-scores.error, kind="stable")[:MAX_ERRORS].tolist()
    ends = [scores.labels.min(), scores.labels.max()]
    return {
        "axes": axes,
        "points": [(axes.x(label), axes.y(predicted)) for label, predicted in shown],
        "same": axes.line(ends, ends),
        "errors": [content.row(at, cell) | {"off": cell(scores.error[at])} for at in worst],
    }


def folded(tree: Tree, metrics: Mapping) -> list[dict]:
    """Return the nodes of the highest level, each with its `name`, its metrics as `scores`, whether it `ends`
    there, and the nodes below it, `children`."""
    classes, parents = metrics["classes"], metrics["parents"]
    entries: dict[tuple, dict] = {(): {"children": []}}
    for number, node in enumerate(tree.nodes):
        name = tree.name(number)
        scores = parents.get(name) or classes[name]
        entry = {"name": node[-1], "scores": scores, "ends": False, "children": []}
        entries[node] = entry
        entries[node[:-1]]["children"].append(entry)
        if name in parents and name in classes:
            entry["children"].append(entry | {"scores": classes[name], "ends": True, "children": []})
    return entries[()]["children"]


def training_curves(content: PageContent, names: Sequence[str]) -> list[tuple]:
    """Return a chart for each metric of the evaluations on dev: its name, axes, line, the places of the
    evaluations where they are few, and that of the best checkpoint."""
    history = [line for line in content.history if line.get("split") == "dev"]
    steps = [line["step"] for line in history]
    charts = []
    for name in names if len(history) > 1 else ():
        values = [line[name] for line in history]
        axes = Axes(min(steps), max(steps), *around(values))
        places = [(axes.x(step), axes.y(value)) for step, value in zip(steps, values, strict=True)]
        # Of a resumed run, a step may be there twice
        best = dict(zip(steps, places, strict=True)).get(content.metrics.get("step"))
        shown = places if len(places) <= FEW_POINTS else []
        charts.append((name, axes, axes.line(steps, values), shown, best))
    return charts


def row_groups(content: PageContent) -> dict[str, list[dict]]:
    """Return groups of rows, to see where they are right, by what they are grouped by: `name`, `rows`,
    `accuracy` and its 95 % Clopper-Pearson `interval`."""
    found: dict[str, tuple[list[str], np.ndarray]] = {}
    if content.lengths is not None:
        # About equally many rows in each
        bins = np.linspace(0, 1, LENGTH_BINS + 1)[1:]
        edges = np.unique(np.quantile(content.lengths, bins, method="higher")).astype(int)
        lows = [int(content.lengths.min()), *(edges[:-1] + 1).tolist()]
        ranges = zip(lows, edges.tolist(), strict=True)
        names = [f"{low}–{edge}" if low < edge else f"{edge}" for low, edge in ranges]
        found[_("by length in tokens")] = names, np.searchsorted(edges, content.lengths)
    if content.readings is not None:
        names = [_("all of it"), _("all of it, in several windows"), _("a part")]
        found[_("by what was read of the text")] = names, content.readings
    if content.unknown is not None:
        percent = [f"{edge * 100:g} %" for edge in UNKNOWN_EDGES]
        between = [f"{low} – {high}" for low, high in zip(percent, percent[1:], strict=False)]
        names = [percent[0], *between, f"> {percent[-1]}"]
        found[_("by share of unknown tokens")] = names, np.searchsorted(UNKNOWN_EDGES, content.unknown)
    if content.seen is not None:
        names = [_("new text"), _("near copy of a training text"), _("also in train")]
        found[_("by whether the text is a training text")] = names, content.seen
    groups = {}
    for by, (names, group_of_row) in found.items():
        members = []
        for number in np.unique(group_of_row):
            correct = content.scores.correct[group_of_row == number]
            interval = proportion_interval(int(correct.sum()), len(correct))
            accuracy = {"accuracy": correct.mean(), "interval": interval}
            members.append({"name": names[int(number)], "rows": len(correct)} | accuracy)
        groups |= {by: members} if len(members) > 1 else {}
    return groups


def rows_of_split(split: Split, train: Split, store: TokenStore, unknown_id: int | None) -> dict[str, Any]:
    """Return what a page knows of the rows of a split, by the names of `PageContent`; `store` has the tokens
    of its table."""
    rows, table = np.asarray(split.rows), split.table
    starts, ends = store.offsets[rows], store.offsets[rows + 1]
    of_rows = (store.tokens[start:end] == unknown_id for start, end in zip(starts, ends, strict=True))

    def text(position: int) -> str:
        pair = table.pair(rows[position])
        return table.text(rows[position]) + ("" if pair is None else f" ⟷ {pair}")

    return {
        "text": text,
        "where": lambda position: table.where(rows[position]).removeprefix(f"{Path.cwd()}{os.sep}"),
        "lengths": ends - starts,
        "unknown": None if unknown_id is None else np.array([is_unknown.mean() for is_unknown in of_rows]),
        "seen": None if split.name == train.name else seen_in_train(split, train),
        "readings": row_readings(store, rows),
    }


def seen_in_train(split: Split, train: Split) -> np.ndarray:
    """Return whether the text of each row is in train: 0 no, 1 nearly, 2 exactly, (num_rows,) int64."""
    is_same = np.isin(split.table.hashes[np.asarray(split.rows)], train.table.hashes[train.rows])
    is_near = 0 if split.copies is None else np.asarray(split.copies) >= 0
    return np.where(is_same, 2, is_near)


@dataclass(frozen=True)
class Axes:
    """A chart of 360 x 230 units whose axes go from `x_low` to `x_high` and from `y_low` to `y_high`; `x` and
    `y` return the places of values."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width, height, right, top, bottom = 360, 230, 12, 10, 34

    @cached_property
    def x_ticks(self) -> list[float]:
        return ticks(self.x_low, self.x_high)

    @cached_property
    def y_ticks(self) -> list[float]:
        return ticks(self.y_low, self.y_high)

    @cached_property
    def left(self) -> int:
        # The room for the longest number beside the y axis; a digit is 7 units wide
        return max(44, 2 + 7 * max(len(f"{value:g}") for value in self.y_ticks))

    def x(self, value: float) -> float:
        share = (float(value) - self.x_low) / (self.x_high - self.x_low or 1)
        return round(self.left + share * (self.width - self.left - self.right), 1)

    def y(self, value: float) -> float:
        share = (float(value) - self.y_low) / (self.y_high - self.y_low or 1)
        return round(self.height - self.bottom - share * (self.height - self.bottom - self.top), 1)

    def line(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        """Return the points of a polyline through (xs, ys); of very many about `MAX_POINTS`."""
        step = max(1, math.ceil(len(xs) / MAX_POINTS))
        kept = sorted({*range(0, len(xs), step), len(xs) - 1})
        return " ".join(f"{self.x(xs[at])},{self.y(ys[at])}" for at in kept)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about `about` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def around(values: Sequence[float] | np.ndarray, from_zero: bool = False) -> tuple[float, float]:
    """Return the ends of an axis for values: a little more than they need."""
    finite = [float(value) for value in values if math.isfinite(value)] or [0.0]
    low, high = (0.0 if from_zero else min(finite)), max(finite)
    margin = (high - low) * 0.06 or max(abs(high), 1) * 0.1
    return (low if from_zero else low - margin), high + margin
