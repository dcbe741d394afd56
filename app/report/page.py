"""report.html: one file to look at, with charts, the worst rows, and where the model is right."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..tasks.scores import Scores
from ..tasks.task import Task
from ..words import _
from .advice import Advice
from .charts import TRAIN_LOSS, Chart, chart_of, ends_around, training_curves
from .class_tables import missing_classes_sentence, worst_classes
from .confidence import NUM_BINS, confidence_bins, risk_curve
from .metrics import best_baseline, metrics_of
from .paired_differences import verdicts
from .row_groups import row_groups, row_readings, seen_in_train
from .split_gap import sentence_on_dev
from .start_of_training import sentence_on_start
from .template_environment import template_environment

MAX_ERRORS = 20  # rows that are listed
MAX_PAIRS = 50  # pairs of classes that are listed
MAX_CLASSES = {"label": 40, "labels": 200, "score": 0}  # that are listed, by the column of answers in files
SCATTER_POINTS = 300
RISK_POINTS = 150
LOWEST_COVERAGE = 0.02  # with which the curve of risk and coverage begins; of fewer rows it would show chance
MIN_BIN_ROWS = 30  # of a bin of the reliability diagram; of fewer rows it would show chance
SHARES = (0, 1)  # the ends of an axis of shares or probabilities


@dataclass(frozen=True)
class PageRows:
    """What a page knows of its rows. `text` and `where` give the text of the row at a position, and its place
    in the data for people. `lengths` are in tokens, `readings` of `row_readings`, and `seen` of
    `seen_in_train`, where it is known; arrays are (num_rows,)."""

    text: Callable[[int], str]
    where: Callable[[int], str]
    lengths: np.ndarray
    readings: np.ndarray
    seen: np.ndarray | None = None


@dataclass(frozen=True)
class RunDetails:
    """What the page of a run says beside the figures: `history`, the evaluations of metrics.jsonl, `data`,
    the statistics of the splits, `advice`, and `facts`, settings and numbers by their names.
    `is_same_loss`: the loss of training is that of dev, so that they can be compared."""

    history: Sequence[Mapping] = ()
    is_same_loss: bool = False
    data: Mapping = field(default_factory=dict)
    advice: Mapping[str, Advice] = field(default_factory=dict)
    facts: Mapping = field(default_factory=dict)


NO_DETAILS = RunDetails()


def rows_of_split(split: Split, train: Split, store: TokenStore) -> PageRows:
    """Return what a page knows of the rows of a split; `store` has their tokens."""
    rows = np.asarray(split.rows)
    table = split.table
    current_folder = f"{Path.cwd()}{os.sep}"

    def text(position: int) -> str:
        return " ⟷ ".join(table.row(rows[position]).texts)

    def where(position: int) -> str:
        place = table.place(rows[position])
        return row_place(place.file.removeprefix(current_folder), place.unit, place.number)

    seen = None
    if split.name != train.name:
        seen = seen_in_train(split, train)
    lengths = store.offsets[rows + 1] - store.offsets[rows]
    return PageRows(text=text, where=where, lengths=lengths, readings=row_readings(store, rows), seen=seen)


def row_place(file: str, unit: str, number: int) -> str:
    """Return the place of a row in its file in the current language; `unit` is what the number counts."""
    places = {
        "line": _("{file}, line {number}"),
        "row": _("{file}, row {number}"),
        "element": _("{file}, element {number}"),
        "text": _("{file}, text {number}"),
    }
    return places[unit].format(file=file, number=number)


def render_page(
    task: Task,
    scores: Scores,
    metrics: Mapping,
    rows: PageRows,
    page_title: str,
    calibrated: Scores | None = None,
    details: RunDetails = NO_DETAILS,
) -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere.

    `metrics` are those of report.json, and `calibrated` the scores after calibration. The page of a run also
    has its `details`.
    """
    main_metric = task.baseline_metrics[0]
    max_classes = MAX_CLASSES[task.answer_column]
    classes = metrics.get("classes", {})
    parents = metrics.get("parents", {})
    names = {metric.key: metric.title for metric in metrics_of(task)}
    names[TRAIN_LOSS] = _("Training loss")
    template = template_environment().get_template("report.html.jinja")
    return template.render(
        task=task,
        scores=scores,
        metrics=metrics,
        text=rows.text,
        where=rows.where,
        page_title=page_title,
        data=details.data,
        advice=details.advice,
        facts=details.facts,
        answer_column=task.answer_column,
        metric_names=names,
        main_metric=main_metric,
        best_baseline=best_baseline(metrics, main_metric),
        verdicts=verdicts(task, metrics),
        dev_is_better=sentence_on_dev(metrics),
        start_on_dev=sentence_on_start(metrics),
        right=int(scores.correct.sum()),
        classes=worst_classes(classes, max_classes, max_classes),
        parents=worst_classes(parents, max_classes, max_classes),
        no_rows=missing_classes_sentence(classes),
        curves=training_curves(details.history, task.log_metrics, metrics.get("step"), details.is_same_loss),
        groupings=row_groups(scores.correct, rows.lengths, rows.readings, rows.seen),
        **sections_of_task(task, scores, metrics, calibrated),
    )


def sections_of_task(task: Task, scores: Scores, metrics: Mapping, calibrated: Scores | None) -> dict:
    """Return what the page shows of one kind of answer only: several labels a row, numbers, or one label."""
    if scores.num_wrong is not None:
        return sections_of_several_labels(task, scores)
    if scores.error is not None:
        return sections_of_numbers(scores)
    return sections_of_one_label(scores, metrics, calibrated)


def sections_of_several_labels(task: Task, scores: Scores) -> dict:
    """The rows with the most wrong labels, of these the largest loss first, and how labels are decided."""
    worst_first = np.lexsort((-scores.loss, -scores.num_wrong))[:MAX_ERRORS]
    errors = worst_first[scores.num_wrong[worst_first] > 0]
    return {"errors": errors.tolist(), "rule": task.state()}


def sections_of_numbers(scores: Scores) -> dict:
    """Predicted against true numbers, and the rows that are furthest off."""
    labels = scores.labels
    predicted = scores.predicted
    x_ends = ends_around(labels)
    y_ends = ends_around([*predicted, *labels])
    diagonal = (labels.min(), labels.max())
    step = max(1, len(labels) // SCATTER_POINTS)
    worst_first = np.argsort(-scores.error, kind="stable")
    return {
        "scatter": chart_of(labels[::step], predicted[::step], x_ends, y_ends),
        "diagonal": chart_of(diagonal, diagonal, x_ends, y_ends),
        "errors": worst_first[:MAX_ERRORS].tolist(),
    }


def sections_of_one_label(scores: Scores, metrics: Mapping, calibrated: Scores | None) -> dict:
    """Confusions, the errors of which the model was surest, the reliability diagram before and after
    calibration, and the curve of risk and coverage."""
    wrong = np.flatnonzero(~scores.correct)
    surest_first = wrong[np.argsort(-scores.confidence[wrong], kind="stable")]
    diagrams = {"raw": reliability_diagram(scores)}
    if calibrated is not None:
        diagrams["calibrated"] = reliability_diagram(calibrated)
    return {
        "matrix": metrics.get("confusion_matrix"),
        "pairs": metrics.get("confusions", [])[:MAX_PAIRS],
        "errors": surest_first[:MAX_ERRORS].tolist(),
        "diagonal": chart_of(SHARES, SHARES, SHARES, SHARES),
        "diagrams": diagrams,
        "risk": risk_chart(calibrated or scores),
    }


def reliability_diagram(scores: Scores) -> Chart:
    """Return how often rows are right against how sure their prediction is."""
    num_bins = max(1, min(NUM_BINS, len(scores) // MIN_BIN_ROWS))
    bins = confidence_bins(scores.confidence, scores.correct, num_bins)
    return chart_of(bins.mean_confidence, bins.accuracy, SHARES, SHARES)


def risk_chart(scores: Scores) -> Chart:
    """Return the share of errors against the share of rows that are decided, the surest first."""
    curve = risk_curve(scores.confidence, scores.correct)
    shares = np.linspace(LOWEST_COVERAGE, 1, RISK_POINTS)
    last = len(curve.risk) - 1
    points = np.unique(np.searchsorted(curve.coverage, shares).clip(max=last))
    _low, highest_risk = ends_around([0, *curve.risk])
    return chart_of(curve.coverage[points], curve.risk[points], SHARES, (0, highest_risk))
