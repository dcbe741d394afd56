"""Charts of the page: where its points and the numbers beside its axes are, in units of a drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# A chart has 360 x 230 units. Its axes end here; the upward one counts from the top.
ACROSS = (56, 348)
UPWARD = (196, 10)
NUM_TICKS = 5
MARGIN = 0.06  # of the range of values, at both ends of an axis
CONSTANT_MARGIN = 0.1  # of a value, where all are equal
FEW_POINTS = 15  # evaluations on dev up to which each is a point
# The loss on dev, and the mean loss of training since the evaluation before, in the lines of metrics.jsonl
DEV_LOSS = "loss"
TRAIN_LOSS = "train_loss"

Ends = tuple[float, float]  # of an axis
Place = tuple[float, float]


@dataclass(frozen=True)
class Chart:
    """Places of `points` in a drawing, and the numbers beside its axes: pairs of a place and a number."""

    x_ticks: list[tuple[float, float]]
    y_ticks: list[tuple[float, float]]
    points: list[Place]


@dataclass(frozen=True)
class TrainingCurve:
    """A metric of the evaluations on dev; `best` is the place of the best checkpoint. `train_points` are the
    loss of training on the same axes, where it is the same loss."""

    chart: Chart
    best: Place | None
    has_dots: bool
    train_points: Sequence[Place] = ()


def chart_of(xs: Sequence[float], ys: Sequence[float], x_ends: Ends, y_ends: Ends) -> Chart:
    """Return the chart of points between the ends of the axes."""
    x_ticks = ticks(x_ends)
    y_ticks = ticks(y_ends)
    return Chart(
        x_ticks=list(zip(places(x_ticks, x_ends, ACROSS), x_ticks, strict=True)),
        y_ticks=list(zip(places(y_ticks, y_ends, UPWARD), y_ticks, strict=True)),
        points=list(zip(places(xs, x_ends, ACROSS), places(ys, y_ends, UPWARD), strict=True)),
    )


def places(values: Sequence[float], ends: Ends, axis: Ends) -> list[float]:
    """Return where values are on an axis in the drawing."""
    low, high = ends
    axis_start, axis_end = axis
    shares = (np.asarray(values, np.float64) - low) / (high - low or 1)
    return np.round(axis_start + shares * (axis_end - axis_start), 1).tolist()


def ticks(ends: Ends) -> list[float]:
    """Return about `NUM_TICKS` round numbers from one end of an axis to the other."""
    low, high = ends
    if not high > low:
        return [low]
    unit = 10 ** math.floor(math.log10((high - low) / NUM_TICKS))
    # 1, 2, 5 or 10 units; a little less than the range, because of rounding
    steps = [unit, unit * 2, unit * 5, unit * 10]
    step = next(step for step in steps if step * (NUM_TICKS + 0.005) >= high - low)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def ends_around(values: Sequence[float] | np.ndarray) -> Ends:
    """Return the ends of an axis for values: a little more than they need."""
    finite = [float(value) for value in values if math.isfinite(value)]
    low = min(finite, default=0.0)
    high = max(finite, default=0.0)
    margin = (high - low) * MARGIN
    if not margin:
        margin = max(abs(high), 1) * CONSTANT_MARGIN
    return low - margin, high + margin


def training_curves(
    history: Sequence[Mapping], names: Sequence[str], best_step: int | None, is_same_loss: bool = False
) -> dict[str, TrainingCurve]:
    """Return a chart for each metric of the evaluations on dev; none for a single evaluation.

    The loss of training is in the chart of the loss on dev where it is the same loss; otherwise it has a
    separate chart, TRAIN_LOSS, because its numbers cannot be compared with those on dev.
    """
    evaluations = [line for line in history if line.get("split") == "dev"]
    if len(evaluations) < 2:
        return {}
    steps = [line["step"] for line in evaluations]
    step_ends = (min(steps), max(steps))
    has_dots = len(steps) <= FEW_POINTS
    train_evaluations = [line for line in evaluations if TRAIN_LOSS in line]
    train_steps = [line["step"] for line in train_evaluations]
    train_losses = [line[TRAIN_LOSS] for line in train_evaluations]
    curves = {}
    for name in names:
        values = [line[name] for line in evaluations]
        has_train_loss = name == DEV_LOSS and is_same_loss
        shown_values = values
        if has_train_loss:
            shown_values = [*values, *train_losses]
        ends = ends_around(shown_values)
        chart = chart_of(steps, values, step_ends, ends)
        train_points: list[Place] = []
        if has_train_loss:
            train_points = chart_of(train_steps, train_losses, step_ends, ends).points
        # A run that was resumed may have evaluated a step twice; the last time counts
        place_of_step = dict(zip(steps, chart.points, strict=True))
        curves[name] = TrainingCurve(
            chart=chart,
            best=place_of_step.get(best_step),
            has_dots=has_dots,
            train_points=train_points,
        )
    if train_losses and not is_same_loss:
        chart = chart_of(train_steps, train_losses, step_ends, ends_around(train_losses))
        curves[TRAIN_LOSS] = TrainingCurve(chart, best=None, has_dots=has_dots)
    return curves
