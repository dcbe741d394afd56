"""By how much a model is better than a baseline on the same rows, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..tasks.scores import Scores
from ..tasks.task import Task
from ..words import _
from .bootstrap import interval_of, resampled_metrics
from .metrics import BY_KEY, Metric, best_baseline, compared_metrics

MODEL_MINUS_BASELINE = "model_minus_baseline"  # in the figures of a baseline


def answer_differences(
    task: Task, labels: np.ndarray, baseline_answers: np.ndarray, model_answers: np.ndarray
) -> dict[str, dict]:
    """Return by how much the metrics of a model are above those of a baseline, by key: the `difference`, and
    its 95 % `interval` by paired bootstrap. Labels and answers are of the same rows, (num_rows, ...). Only
    metrics that follow from answers alone are compared."""
    metrics = [metric for metric in compared_metrics(task) if metric.from_answers]
    scores = [answers_alone(labels, answers) for answers in (baseline_answers, model_answers)]
    differences = {}
    for resampled_metric in resampled_metrics(task, scores, [-1.0, 1.0], metrics):
        baseline_value, model_value = resampled_metric.values
        differences[resampled_metric.metric.key] = {
            "difference": model_value - baseline_value,
            "interval": list(interval_of(resampled_metric.draws)),
        }
    return differences


def answers_alone(labels: np.ndarray, answers: np.ndarray) -> Scores:
    """Return scores that have no loss, for metrics that need none."""
    return Scores(labels, answers, labels == answers, np.empty(0))


@dataclass(frozen=True)
class Verdict:
    """How a model does against the best baseline by one metric: by how much its value is above that of the
    baseline, on the same rows, and whether it is better. `is_sure`: the interval does not contain 0."""

    metric: Metric
    baseline: str
    difference: float
    interval: tuple[float, float]
    is_better: bool
    is_sure: bool

    @property
    def sentence(self) -> str:
        """The verdict in the current language, in one line."""
        if not self.is_sure:
            words = _("not surely better")
        elif self.is_better:
            words = _("surely better")
        else:
            words = _("surely worse")
        sentence = _(
            "{metric} {difference:+.4f} against {baseline} ({low:+.4f} to {high:+.4f}, same rows): {verdict}"
        )
        low, high = self.interval
        return sentence.format(
            metric=self.metric.name,
            difference=self.difference,
            baseline=_(self.baseline),
            low=low,
            high=high,
            verdict=words,
        )


def verdict_on(metrics: Mapping, key: str) -> Verdict | None:
    """Return the verdict against the best baseline by the metric `key`; None where there is no baseline that
    was compared on the same rows."""
    baseline = best_baseline(metrics, key)
    if baseline is None or key not in baseline[1].get(MODEL_MINUS_BASELINE, {}):
        return None
    name, figures = baseline
    compared = figures[MODEL_MINUS_BASELINE][key]
    metric = BY_KEY[key]
    low, high = compared["interval"]
    difference = compared["difference"]
    is_better = difference > 0
    if not metric.higher_is_better:
        is_better = difference < 0
    return Verdict(
        metric=metric,
        baseline=name,
        difference=difference,
        interval=(low, high),
        is_better=is_better,
        is_sure=low > 0 or high < 0,
    )


def verdicts(task: Task, metrics: Mapping) -> list[Verdict]:
    """Return the verdicts by the metrics that stand beside the baselines."""
    verdicts_by_metric = []
    for key in task.baseline_metrics:
        verdict = verdict_on(metrics, key)
        if verdict is not None:
            verdicts_by_metric.append(verdict)
    return verdicts_by_metric
