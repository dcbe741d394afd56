"""report.html: one file to look at, with everything that is known about a model on labelled rows."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..tasks.task import Scores, Task
from ..words import _
from .confidence import NUM_BINS, confidence_bins, risk_coverage
from .metrics import best_baseline, confusions, metrics_of, worst_labels
from .text import READINGS, page_environment, right_by_group, row_readings

LEFT, RIGHT, TOP, BOTTOM = 56, 348, 10, 196  # of what is drawn in a chart of 360 x 230 units
SCATTER_POINTS, RISK_POINTS = 300, 150
FEW_POINTS = 15  # evaluations on dev up to which each is a point
LENGTH_BINS = 6
MAX_IN_MATRIX, MAX_PAIRS = 30, 50  # classes of a matrix, and confusions that are listed instead
MAX_SHOWN = {"label": 40, "labels": 200, "score": 0}  # classes, and labels of which a row has several
MAX_ERRORS = 20
MIN_BIN = 30  # rows of a bin of the reliability diagram; of fewer, it would show chance

Ends = tuple[float, float]  # of an axis


def render_page(
    task: Task,
    scores: Scores,
    metrics: Mapping,
    lengths: np.ndarray,
    readings: np.ndarray,
    seen: np.ndarray | None = None,
    calibrated: Scores | None = None,
    **shown: Any,
) -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere.

    `metrics` are those of report.json; `lengths` are in tokens, `readings` of `row_readings`, `seen` of
    `seen_in_train`, (num_rows,) each; `calibrated` are the scores after calibration. Shown are `page_title`;
    `text` and `where`, functions of the position of a row; and, where they are known, `history`, the
    evaluations of metrics.jsonl, `data`, the statistics of the splits, `advice`, and `facts` of the run.
    """
    names = {metric.key: metric.title for metric in metrics_of(task) if metric.has_interval}
    main, most = task.beside_baselines[0], MAX_SHOWN[task.label_column]
    curves = training_curves(shown.get("history", ()), task.log_metrics, metrics.get("step"))
    template = page_environment().get_template("report.html.jinja")
    return template.render(
        {"data": {}, "advice": {}, "facts": {}} | shown,
        task=task,
        scores=scores,
        metrics=metrics,
        kind=task.label_column,
        metric_names=names,
        main=main,
        best_baseline=best_baseline(metrics, main),
        right=int(scores.correct.sum()),
        classes=worst_labels(metrics.get("classes", {}), most, most),
        parents=worst_labels(metrics.get("parents", {}), most, most),
        curves={key: found for key, found in curves.items() if key in names},
        groups=row_groups(scores.correct, lengths, readings, seen),
        **sections(task, scores, metrics, calibrated),
    )


def sections(task: Task, scores: Scores, metrics: Mapping, calibrated: Scores | None) -> dict:
    """Return what the page shows of one kind of answer. Of several labels a row, the rows with the most wrong
    labels, of these the largest loss first; of numbers, predicted against true, and the worst rows; of one
    label, confusions, the errors of which the model was surest, the reliability diagram, before and after
    calibration, and the curve of risk and coverage."""
    if scores.num_wrong is not None:
        order = np.lexsort((-scores.loss, -scores.num_wrong))[:MAX_ERRORS]
        return {"errors": order[scores.num_wrong[order] > 0].tolist(), "rule": task.state()}
    if scores.error is not None:
        labels, predicted = scores.labels, scores.predicted
        ends, same = (around(labels), around([*predicted, *labels])), (labels.min(), labels.max())
        step = max(1, len(labels) // SCATTER_POINTS)
        return {
            "scatter": chart(labels[::step], predicted[::step], *ends),
            "same": chart(same, same, *ends),
            "errors": np.argsort(-scores.error, kind="stable")[:MAX_ERRORS].tolist(),
        }
    wrong = np.flatnonzero(~scores.correct)
    num_bins, diagrams = max(1, min(NUM_BINS, len(scores) // MIN_BIN)), {}
    for key, of in {"raw": scores, "calibrated": calibrated}.items():
        if of is not None:
            _rows, means, accuracy = confidence_bins(of.confidence, of.correct, num_bins)
            diagrams[key] = chart(means, accuracy, (0, 1), (0, 1))
    final = calibrated or scores
    _confidence, coverage, risk = risk_coverage(final.confidence, final.correct)
    shown = np.unique(np.searchsorted(coverage, np.linspace(0.02, 1, RISK_POINTS)).clip(max=len(risk) - 1))
    return {
        "matrix": metrics["confusion_matrix"] if len(task.label_names) <= MAX_IN_MATRIX else None,
        "pairs": confusions(metrics)[:MAX_PAIRS],
        "errors": wrong[np.argsort(-scores.confidence[wrong], kind="stable")[:MAX_ERRORS]].tolist(),
        "square": chart((0, 1), (0, 1), (0, 1), (0, 1)),
        "diagrams": diagrams,
        "risk": chart(coverage[shown], risk[shown], (0, 1), (0, around([0, *risk])[1])),
    }


def training_curves(history: Sequence[Mapping], names: Sequence[str], best_step: int | None) -> dict:
    """Return a chart for each metric of the evaluations on dev, with the place of the `best` checkpoint."""
    history = [line for line in history if line.get("split") == "dev"]
    steps, charts = [line["step"] for line in history], {}
    for name in names if len(history) > 1 else ():
        values = [line[name] for line in history]
        found = chart(steps, values, (min(steps), max(steps)), around(values))
        # Of a resumed run, a step may be there twice
        best = dict(zip(steps, found["points"], strict=True)).get(best_step)
        charts[name] = found | {"best": best, "has_dots": len(steps) <= FEW_POINTS}
    return charts


def row_groups(
    correct: np.ndarray, lengths: np.ndarray, readings: np.ndarray, seen: np.ndarray | None
) -> dict[str, dict]:
    """Return `right_by_group` of groups of rows, by what they are grouped by."""
    # About equally many rows in each
    bins = np.linspace(0, 1, LENGTH_BINS + 1)[1:]
    edges = np.unique(np.quantile(lengths, bins, method="higher")).astype(int)
    lows = [int(lengths.min()), *(edges[:-1] + 1).tolist()]
    ranges = zip(lows, edges.tolist(), strict=True)
    names = [f"{low}–{edge}" if low < edge else f"{edge}" for low, edge in ranges]
    found = {_("by length in tokens"): (names, np.searchsorted(edges, lengths))}
    found[_("by what was read of the text")] = list(map(_, READINGS.values())), readings
    if seen is not None:
        names = [_("new text"), _("near copy of a training text"), _("also in train")]
        found[_("by whether the text is a training text")] = names, seen
    groups = {by: right_by_group(*of, correct) for by, of in found.items()}
    return {by: members for by, members in groups.items() if len(members) > 1}


def rows_of_split(split: Split, train: Split, store: TokenStore) -> dict[str, Any]:
    """Return what a page knows of the rows of a split, by the names of `render_page`; `store` has the tokens
    of its table."""
    rows, table = np.asarray(split.rows), split.table

    def text(position: int) -> str:
        pair = table.pair(rows[position])
        return table.text(rows[position]) + ("" if pair is None else f" ⟷ {pair}")

    return {
        "text": text,
        "where": lambda position: table.where(rows[position]).removeprefix(f"{Path.cwd()}{os.sep}"),
        "lengths": store.offsets[rows + 1] - store.offsets[rows],
        "seen": None if split.name == train.name else seen_in_train(split, train),
        "readings": row_readings(store, rows),
    }


def seen_in_train(split: Split, train: Split) -> np.ndarray:
    """Return whether the text of each row is in train: 0 no, 1 nearly, 2 exactly, (num_rows,) int64."""
    is_same = np.isin(split.table.hashes[np.asarray(split.rows)], train.table.hashes[train.rows])
    is_near = 0 if split.copies is None else np.asarray(split.copies) >= 0
    return np.where(is_same, 2, is_near)


def chart(xs: Sequence[float], ys: Sequence[float], x_ends: Ends, y_ends: Ends) -> dict:
    """Return what is drawn of points between the ends of the axes, in units of a chart: their places,
    `points`, and the numbers beside the axes with their places."""

    def places(values: Sequence[float], ends: Ends, start: float, end: float) -> list[float]:
        shares = (np.asarray(values, np.float64) - ends[0]) / (ends[1] - ends[0] or 1)
        return np.round(start + shares * (end - start), 1).tolist()

    x_ticks, y_ticks = ticks(*x_ends), ticks(*y_ends)
    return {
        "x_ticks": list(zip(places(x_ticks, x_ends, LEFT, RIGHT), x_ticks, strict=True)),
        "y_ticks": list(zip(places(y_ticks, y_ends, BOTTOM, TOP), y_ticks, strict=True)),
        "points": list(zip(places(xs, x_ends, LEFT, RIGHT), places(ys, y_ends, BOTTOM, TOP), strict=True)),
    }


def ticks(low: float, high: float) -> list[float]:
    """Return about 5 round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    unit = 10 ** math.floor(math.log10((high - low) / 5))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor * 5.005 >= high - low)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def around(values: Sequence[float] | np.ndarray) -> Ends:
    """Return the ends of an axis for values: a little more than they need."""
    finite = [float(value) for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    margin = (high - low) * 0.06 or max(abs(high), 1) * 0.1
    return low - margin, high + margin
