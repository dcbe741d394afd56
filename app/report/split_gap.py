"""Whether a model is further above the rows of its report on dev than chance explains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..tasks.scores import Scores
from ..tasks.task import Task
from ..words import _
from .bootstrap import with_intervals
from .metrics import BY_KEY, metrics_with_interval


def lead_of_dev(task: Task, dev: Scores, metrics: Mapping) -> dict[str, Any]:
    """Return the `metric` by which dev is better than the rows of the report beyond the 95 % interval of the
    difference, its value and its `interval` on dev, and the `rows` of dev; empty where it is not.

    `metrics` are those of the rows of the report. Several labels a row have thresholds that are best for dev,
    so dev is always better, and nothing is returned.
    """
    key = task.best_metric
    if task.answer_column == "labels" or key not in metrics["intervals"]:
        return {}
    metric = next(metric for metric in metrics_with_interval(task) if metric.key == key)
    values = with_intervals(task, dev, [metric])
    value = values[key]
    low, high = values["intervals"][key]
    report_low, report_high = metrics["intervals"][key]
    lead = value - metrics[key]
    margin = math.hypot(value - low, report_high - metrics[key])
    if not metric.higher_is_better:
        lead = -lead
        margin = math.hypot(high - value, metrics[key] - report_low)
    if not lead > margin:
        return {}
    return {"metric": key, "value": value, "interval": [low, high], "rows": len(dev)}


def sentence_on_dev(metrics: Mapping) -> str:
    """Return in the current language what `lead_of_dev` has found; empty where it has found nothing."""
    lead = metrics.get("dev_is_better")
    if not lead:
        return ""
    sentence = _(
        "On dev {metric} is {value:.4f} ({low:.4f} to {high:.4f}), here {here:.4f}: more than chance "
        "explains. Go by the figures here, and see whether these texts are of another kind than those of "
        "train and dev"
    )
    low, high = lead["interval"]
    return sentence.format(
        metric=BY_KEY[lead["metric"]].name,
        value=lead["value"],
        low=low,
        high=high,
        here=metrics[lead["metric"]],
    )
