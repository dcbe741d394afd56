"""report.html: one file to look at, with everything that is known about a model on labelled rows; and what
all pages have: templates, texts of strangers made visible, numbers as places in a picture."""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..tasks.task import Scores, Task
from ..tasks.tree import Tree
from ..words import _, current_language, pgettext
from .confidence import NUM_BINS, confidence_bins, proportion_interval, risk_coverage
from .metrics import BASELINES, BY_KEY, best_baseline, confused_pairs, metrics_of, worst_labels
from .text import calibration_line, row_readings

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MAX_TEXT, MAX_LABEL = 200, 40  # characters
MAX_POINTS = 300  # of a line
LENGTH_BINS = 6
UNKNOWN_EDGES = (0.0, 0.02, 0.1)  # shares of unknown tokens; the last bin has no upper edge
FEW_POINTS = 15  # evaluations on dev up to which each is a point
MAX_IN_MATRIX, MAX_BARS, MAX_LABELS = 30, 40, 200  # classes, and labels of which a row has several
MAX_PAIRS, MAX_LISTED = 20, 50  # confusions, with examples and without
MAX_EXAMPLES, MAX_ERRORS = 3, 20
MIN_BIN = 30  # rows of a bin of the reliability diagram; of fewer, it would show chance


def visible(text: str, longest: int = MAX_TEXT) -> str:
    """Return untrusted text, cut, with control characters as code points."""

    def shown(character: str) -> str:
        if character in "\n\r\t":
            return " "
        is_hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        return f"‹U+{ord(character):04X}›" if is_hidden else character

    return "".join(map(shown, text[:longest])) + "…" * (len(text) > longest)


def page_environment(folder: Path = TEMPLATES, autoescape: bool = True) -> Environment:
    """Return the environment of the templates of pages, with their filters; `folder` has more templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader([TEMPLATES, folder])
    environment = Environment(
        loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"_": _, "pgettext": pgettext, "language": current_language}
    environment.filters |= {
        "visible": visible,
        "label": lambda name: visible(name, MAX_LABEL),
        "figure": "{:.4f}".format,
        "percent": lambda value: f"{value * 100:.1f} %",
        "number": "{:,}".format,
    }
    return environment


@dataclass(frozen=True)
class Axes:
    """A chart of 360 x 230 units whose axes go from `x_low` to `x_high` and from `y_low` to `y_high`."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: int = 360
    height: int = 230
    right: int = 12
    top: int = 10
    bottom: int = 34

    @cached_property
    def left(self) -> int:
        """The room for the longest number beside the y axis; a digit is 7 units wide."""
        return max(44, 2 + 7 * max(len(f"{value:g}") for value in self.y_ticks))

    def x(self, value: float) -> float:
        """Return the place of a value on the x axis."""
        inner = self.width - self.left - self.right
        return round(self.left + (value - self.x_low) / (self.x_high - self.x_low or 1) * inner, 1)

    def y(self, value: float) -> float:
        """Return the place of a value on the y axis."""
        bottom = self.height - self.bottom
        return round(bottom - (value - self.y_low) / (self.y_high - self.y_low or 1) * (bottom - self.top), 1)

    def line(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        """Return the points of a polyline through (xs, ys); of very many about `MAX_POINTS`."""
        step = max(1, math.ceil(len(xs) / MAX_POINTS))
        kept = sorted({*range(0, len(xs), step), max(0, len(xs) - 1)}) if len(xs) else []
        return " ".join(f"{self.x(float(xs[i]))},{self.y(float(ys[i]))}" for i in kept)

    @property
    def x_ticks(self) -> list[float]:
        return ticks(self.x_low, self.x_high)

    @property
    def y_ticks(self) -> list[float]:
        return ticks(self.y_low, self.y_high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about `about` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def around(values: Sequence[float], from_zero: bool = False) -> tuple[float, float]:
    """Return the ends of an axis for values: a little more than they need."""
    finite = np.asarray([value for value in values if math.isfinite(value)] or [0.0])
    low, high = (0.0 if from_zero else float(finite.min())), float(finite.max())
    margin = (high - low) * 0.06 or max(abs(high), 1) * 0.1
    return (low if from_zero else low - margin), high + margin


@dataclass(frozen=True)
class PageContent:
    """What the page is about; arrays are (num_rows,), None where it is not known.

    `metrics` are those of report.json, `calibrated` the scores of the rows after calibration (None: there is
    none). `text` and `where` return the text, and the file and line, of the row at a position. `lengths` are
    in tokens, `unknown` is the share of unknown tokens, `seen` whether the text is a training text: 0 no, 1
    nearly, 2 exactly; `readings` is what was read of it (`row_readings`). `evidence` returns the nearest
    training rows of the row at a position: `similarity`, `label`, `text`, `where`. `history` are the
    evaluations on dev of metrics.jsonl, `data` the statistics of the data report, by split, `advice` what to
    do next, each with `sentence()`, `facts` values of the run by their names.
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
    evidence: Callable[[int], list[dict]] = lambda at: []
    history: list[dict] = field(default_factory=list)
    data: Mapping = field(default_factory=dict)
    advice: Sequence = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def row(self, at: int) -> dict:
        """Return what the page shows of a row beside its answers."""
        return {"text": self.text(at), "where": self.where(at), "evidence": self.evidence(at)}


def rows_of_split(split: Split, train: Split, store: TokenStore, unknown_id: int | None) -> dict[str, Any]:
    """Return what a page knows of the rows of a split, by the names of `PageContent`; `store` has the tokens
    of its table."""
    rows = np.asarray(split.rows)
    lengths = store.offsets[rows + 1] - store.offsets[rows]

    def text(position: int) -> str:
        pair = split.table.pair(rows[position])
        return split.table.text(rows[position]) + ("" if pair is None else f" ⟷ {pair}")

    def where(position: int) -> str:
        return split.table.where(rows[position]).removeprefix(f"{Path.cwd()}{os.sep}")

    return {
        "text": text,
        "where": where,
        "lengths": lengths,
        "unknown": None if unknown_id is None else unknown_counts(store, rows, unknown_id) / lengths,
        "seen": None if split.name == train.name else seen_in_train(split, train),
        "readings": row_readings(store, rows),
    }


def seen_in_train(split: Split, train: Split) -> np.ndarray:
    """Return whether the text of each row is in train: 0 no, 1 nearly, 2 exactly, (num_rows,) int64."""
    is_same = np.isin(split.table.hashes[np.asarray(split.rows)], train.table.hashes[train.rows])
    is_near = 0 if split.copies is None else np.asarray(split.copies) >= 0
    return np.where(is_same, 2, is_near)


def unknown_counts(store: TokenStore, rows: np.ndarray, unknown_id: int) -> np.ndarray:
    """Return how many tokens of each row, (num_rows,) ids, are the unknown one."""
    ends = zip(store.offsets[rows], store.offsets[rows + 1], strict=True)
    return np.array([(store.tokens[start:end] == unknown_id).sum() for start, end in ends])


def render_page(content: PageContent) -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere."""
    task, metrics = content.task, content.metrics
    names = {metric.key: metric.title for metric in metrics_of(task) if metric.headline}
    if content.scores.error is not None:
        titles, sections = {"scatter": _("Predicted against true")}, number_sections(content)
        titles["errors"] = _("The rows that are furthest off")
    elif content.scores.labels.ndim == 2:
        titles = {"labels": _("Labels"), "errors": _("The rows with the most wrong labels")}
        sections = list_sections(content)
    else:
        titles = {"classes": _("Classes"), "confusions": _("Which class is taken for which")}
        titles |= {"calibration": _("May one trust a probability")}
        sections = class_sections(content)
        if sections["examples"]:
            titles["examples"] = _("The errors it was surest of")
    groups = row_groups(content)
    curves = training_curves(content, [key for key in task.log_metrics if key in names])
    last = {"curves": (curves, _("While training: dev")), "groups": (groups, task.word("right"))}
    last |= {"data": (content.data, _("Data")), "facts": (content.facts, _("The run"))}
    first = {"what_next": (content.advice, _("What next?")), "headline": (True, _("How good, and how sure"))}
    own = {key: (True, title) for key, title in titles.items()}
    titles = {key: title for key, (shown, title) in (first | own | last).items() if shown}
    page = {"content": content, "page_title": content.title, "metrics": metrics, "titles": titles}
    page |= {"metric_names": names, "beside_baselines": task.beside_baselines, "summary": summary(content)}
    page |= {"baseline_names": {name: _(title) for name, title in BASELINES.items()}}
    page |= {"curves": curves, "groups": groups, "num_classes": len(metrics.get("classes", ()))}
    page |= {"tree": folded(task.tree, metrics) if task.tree else None} | sections
    return page_environment().get_template("report.html.jinja").render(page)


def summary(content: PageContent) -> str:
    """Return how good the model is in one sentence, beside the best baseline."""
    metrics, right = content.metrics, content.scores.correct
    main = BY_KEY[content.task.beside_baselines[0]]
    low, high = metrics["intervals"][main.key]
    values = {"rows": len(right), "right": int(right.sum()), "low": low, "high": high}
    values |= {"metric": main.name, "value": metrics[main.key]}
    text = content.task.word("summary").format(**values)
    if best := best_baseline(metrics, main.key):
        name, measured = best
        beside = _(" For comparison, {baseline}: {value:.3f}.")
        text += beside.format(baseline=_(BASELINES[name]), value=measured[main.key])
    return text


def class_sections(content: PageContent) -> dict:
    """Return what the page shows of one label a row: classes, confusions, certainty, and errors."""
    scores, names = content.scores, content.task.label_names
    classes, num_labels = content.metrics["classes"], len(names)
    pairs = confused_pairs(scores.labels, scores.predicted, num_labels)
    matrix = None
    if num_labels <= MAX_IN_MATRIX:
        cells = np.bincount(scores.labels * num_labels + scores.predicted, minlength=num_labels**2)
        matrix = cells.reshape(num_labels, num_labels).tolist()
    examples = []
    for label, predicted, rows in pairs[:MAX_PAIRS]:
        of_pair = np.flatnonzero((scores.labels == label) & (scores.predicted == predicted))
        surest = of_pair[np.argsort(-scores.confidence[of_pair], kind="stable")[:MAX_EXAMPLES]].tolist()
        shown = [content.row(at) | {"confidence": float(scores.confidence[at])} for at in surest]
        examples.append((names[label], names[predicted], rows, shown))
    shown = classes if len(classes) <= MAX_BARS else worst_labels(classes, MAX_BARS)
    listed = [(names[label], names[predicted], rows) for label, predicted, rows in pairs[:MAX_LISTED]]
    sections = {
        "classes": shown,
        "label_names": names,
        "matrix": matrix,
        "pairs": listed,
        "examples": examples,
    }
    return sections | certainty_section(content)


def certainty_section(content: PageContent) -> dict:
    """Return the reliability diagram, before and after calibration, and the curve of risk and coverage."""
    final = content.calibrated or content.scores
    num_bins = max(1, min(NUM_BINS, len(final) // MIN_BIN))
    bins = {"raw": confidence_bins(content.scores.confidence, content.scores.correct, num_bins)}
    if content.calibrated:
        bins["calibrated"] = confidence_bins(final.confidence, final.correct, num_bins)
    _confidence, coverage, risk = risk_coverage(final.confidence, final.correct)
    axes = Axes(0, 1, *around(risk, from_zero=True))
    places = np.unique(np.searchsorted(coverage, np.linspace(0.02, 1, 150)).clip(max=len(coverage) - 1))
    sections = {"square": Axes(0, 1, 0, 1), "bins": bins, "calibration_line": calibration_line}
    return sections | {"risk_axes": axes, "risk": axes.line(coverage[places], risk[places])}


def list_sections(content: PageContent) -> dict:
    """Return what the page shows of several labels a row: the labels with their thresholds, and the rows with
    the most wrong labels, of these the largest loss first."""
    classes, scores, answer = content.metrics["classes"], content.scores, content.task.answer
    order = np.lexsort((-scores.loss, -scores.num_wrong))[:MAX_ERRORS]
    errors = [
        content.row(at)
        | {"num_wrong": int(scores.num_wrong[at])}
        | {"true": answer(scores.labels[at]), "predicted": answer(scores.predicted[at])}
        for at in order[scores.num_wrong[order] > 0].tolist()
    ]
    shown = classes if len(classes) <= MAX_LABELS else worst_labels(classes, MAX_LABELS)
    return {"classes": shown, "rule": content.task.label_rule(), "errors": errors}


def number_sections(content: PageContent) -> dict:
    """Return what the page shows of one number a row: predicted against true, and the worst rows."""
    scores, cell = content.scores, content.task.cell
    axes = Axes(*around([*scores.labels]), *around([*scores.predicted, *scores.labels]))
    step = max(1, len(scores) // MAX_POINTS)
    shown = zip(scores.labels[::step], scores.predicted[::step], strict=True)
    points = [(axes.x(float(label)), axes.y(float(predicted))) for label, predicted in shown]
    errors = [
        content.row(at)
        | {"true": cell(scores.labels[at]), "predicted": cell(scores.predicted[at])}
        | {"off": cell(scores.error[at])}
        for at in np.argsort(-scores.error, kind="stable")[:MAX_ERRORS].tolist()
    ]
    ends = [float(value) for value in (scores.labels.min(), scores.labels.max())]
    return {"axes": axes, "points": points, "same": axes.line(ends, ends), "errors": errors}


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
        best_step = content.metrics.get("step")
        best = next((line for line in reversed(history) if line["step"] == best_step), None)
        points = [(axes.x(step), axes.y(value)) for step, value in zip(steps, values, strict=True)]
        shown = points if len(points) <= FEW_POINTS else []
        place = best and (axes.x(best["step"]), axes.y(best[name]))
        charts.append((name, axes, axes.line(steps, values), shown, place))
    return charts


@dataclass(frozen=True)
class Group:
    """Rows of one kind: how many, how many right, and the 95 % Clopper-Pearson interval of their accuracy."""

    name: str
    rows: int
    right: int

    @property
    def accuracy(self) -> float:
        return self.right / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        return proportion_interval(self.right, self.rows)


def row_groups(content: PageContent) -> dict[str, list[Group]]:
    """Return groups of rows, to see where they are right, by what they are grouped by."""
    found: dict[str, tuple[list[str], np.ndarray]] = {}
    if content.lengths is not None:
        # About equally many rows in each
        bins = np.linspace(0, 1, LENGTH_BINS + 1)[1:]
        edges = np.unique(np.quantile(content.lengths, bins, method="higher")).astype(int)
        lows = [int(content.lengths.min()), *(edges[:-1] + 1).tolist()]
        names = [f"{low}–{edge}" if low < edge else f"{edge}" for low, edge in zip(lows, edges, strict=True)]
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
        counts = np.bincount(group_of_row, minlength=len(names))
        right = np.bincount(group_of_row, weights=content.scores.correct, minlength=len(names))
        groups[by] = [
            Group(name, int(n), int(r)) for name, n, r in zip(names, counts, right, strict=True) if n
        ]
    return {by: members for by, members in groups.items() if len(members) > 1}
