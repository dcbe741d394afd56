"""How far metrics would move with other rows, another model or another seed, by drawing the rows again.

Rows that are alike are one cell of a table, and drawing rows with replacement is drawing how often each cell
is chosen. So a million rows cost no more than their table. Its cells are the answers that differ, or narrow
ranges of values for a mean, or of ranks by the probability of the rarer of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..tasks.scores import Scores
from ..tasks.task import Task
from .confidence import INTERVAL_LEVEL
from .drawn_rows import AnswerPairs, DrawnRows, distinct_rows, rarer_label
from .measure import measure
from .metrics import Metric, compared_metrics, metrics_with_interval
from .ranking import class_counts, rank_cells, ranked_rows

RESAMPLES = 1000
MIN_RESAMPLES = 200  # resamples of a table with very many cells
MAX_DRAWS = 20_000_000  # cells x resamples
BLOCK_DRAWS = 2_000_000  # cells x resamples in memory at once
VALUE_CELLS = 2048  # cells of the values of a mean

Interval = tuple[float, float]


@dataclass(frozen=True)
class ResampledMetric:
    """A metric of several models on the same rows: its value for each model, and the weighted sum of these
    values in each resample of the rows, (num_resamples,)."""

    metric: Metric
    values: list[float]
    draws: np.ndarray


def resampled(
    counts: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], generator: np.random.Generator
) -> np.ndarray:
    """Return a statistic, (..., num_resamples), of rows that are drawn again; `counts` (num_cells,) is how
    many of them each cell has. `statistic` gets a block of counts, (num_resamples, num_cells)."""
    num_rows = counts.sum()
    num_cells = len(counts)
    num_resamples = int(np.clip(MAX_DRAWS // num_cells, MIN_RESAMPLES, RESAMPLES))
    block_size = max(1, BLOCK_DRAWS // num_cells)
    values = []
    for start in range(0, num_resamples, block_size):
        size = min(block_size, num_resamples - start)
        drawn_counts = generator.multinomial(num_rows, counts / num_rows, size)
        values.append(statistic(drawn_counts))
    return np.concatenate(values, axis=-1)


def interval_of(draws: np.ndarray) -> Interval:
    """Return the 95 % percentile interval of the values of resamples, (num_resamples,)."""
    low, high = np.quantile(draws, [(1 - INTERVAL_LEVEL) / 2, (1 + INTERVAL_LEVEL) / 2])
    return float(low), float(high)


def resampled_means(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the means, (num_resamples,), of resamples of `values`, (num_rows,). Equal values are not drawn:
    their mean is returned twice."""
    low = float(values.min())
    high = float(values.max())
    if low == high:
        return np.array([low, low])
    cells = ((values - low) * ((VALUE_CELLS - 1) / (high - low))).astype(np.int64)
    counts = np.bincount(cells)
    sums = np.bincount(cells, weights=values)
    has_rows = counts > 0
    counts = counts[has_rows]
    means = sums[has_rows] / counts
    return resampled(counts, lambda drawn_counts: drawn_counts @ means, generator) / len(values)


def resampled_metrics(
    task: Task, scores: Sequence[Scores], weights: Sequence[float], metrics: Sequence[Metric]
) -> list[ResampledMetric]:
    """Return metrics of several models, whose `scores` are of the same rows, on these rows and on resamples
    of them. A resample has the same rows for all models, and gives the sum of their values times `weights`.
    """
    by_answers = []
    by_scores = []
    by_ranking = []
    for metric in metrics:
        if metric.from_answers:
            by_answers.append(metric)
        elif metric.from_scores:
            by_scores.append(metric)
        else:
            by_ranking.append(metric)
    generator = np.random.default_rng(0)
    results = []
    if by_answers:
        results += resample_by_answers(task, scores, weights, by_answers)
    for metric in by_scores:
        results.append(resample_by_scores(scores, weights, metric, generator))
    if by_ranking:
        # These are never compared, so that there is one model only
        [model_scores] = scores
        results += resample_by_ranking(task, model_scores, by_ranking, generator)
    return results


def resample_by_answers(
    task: Task, scores: Sequence[Scores], weights: Sequence[float], metrics: Sequence[Metric]
) -> list[ResampledMetric]:
    """Return `resampled_metrics` that follow from labels and answers alone."""
    predictions = [model_scores.predicted for model_scores in scores]
    (labels, *answers), counts = distinct_rows(scores[0].labels, *predictions)
    rare_label = rarer_label(task, scores[0].labels)
    models = [AnswerPairs(task, labels, model_answers, rare_label) for model_answers in answers]

    def metric_values(drawn_counts: np.ndarray) -> np.ndarray:
        """Return the metrics of each model, (num_models, num_metrics, num_resamples)."""
        values = []
        for model in models:
            rows = DrawnRows(model, drawn_counts)
            values.append([metric.from_answers(rows) for metric in metrics])
        return np.array(values)

    def weighted_values(drawn_counts: np.ndarray) -> np.ndarray:
        return np.tensordot(weights, metric_values(drawn_counts), 1)

    values = metric_values(counts[None])[..., 0]
    draws = resampled(counts, weighted_values, np.random.default_rng(0))
    return resampled_list(metrics, values.T.tolist(), draws)


def resample_by_scores(
    scores: Sequence[Scores], weights: Sequence[float], metric: Metric, generator: np.random.Generator
) -> ResampledMetric:
    """Return one of the `resampled_metrics`, which is the mean of a value for each row."""
    row_values = []
    means = []
    for model_scores in scores:
        values = metric.from_scores(model_scores)
        row_values.append(values)
        means.append(float(values.mean()))
    weighted_values = np.tensordot(weights, row_values, 1)
    return ResampledMetric(metric, means, resampled_means(weighted_values, generator))


def resample_by_ranking(
    task: Task, scores: Scores, metrics: Sequence[Metric], generator: np.random.Generator
) -> list[ResampledMetric]:
    """Return `resampled_metrics` of one model that follow from how it ranks the rows of the rarer class."""
    is_rare = scores.labels == rarer_label(task, scores.labels)
    counts = class_counts(is_rare, rank_cells(is_rare, scores.rare_chance))

    def metric_values(drawn_counts: np.ndarray) -> np.ndarray:
        """Return the metrics, (num_metrics, num_resamples)."""
        ranking = ranked_rows(drawn_counts)
        return np.array([metric.from_ranking(ranking, metric.precision) for metric in metrics])

    values = metric_values(counts[None]).tolist()
    draws = resampled(counts, metric_values, generator)
    return resampled_list(metrics, values, draws)


def resampled_list(
    metrics: Sequence[Metric], values: list[list[float]], draws: np.ndarray
) -> list[ResampledMetric]:
    """Join metrics with their values for each model, and their draws, (num_metrics, num_resamples)."""
    results = []
    for metric, metric_values, metric_draws in zip(metrics, values, draws, strict=True):
        results.append(ResampledMetric(metric, metric_values, metric_draws))
    return results


def with_intervals(task: Task, scores: Scores, metrics: Sequence[Metric]) -> dict:
    """Return the values of metrics, and their 95 % `intervals`."""
    values = {}
    intervals = {}
    for resampled_metric in resampled_metrics(task, [scores], [1.0], metrics):
        metric = resampled_metric.metric
        [value] = resampled_metric.values
        draws = resampled_metric.draws
        if metric.is_centred:
            draws = np.clip(draws + (value - draws.mean()), 0, 1)
        values[metric.key] = value
        intervals[metric.key] = list(interval_of(draws))
    values["intervals"] = {metric.key: intervals[metric.key] for metric in metrics}
    return values


def answer_metrics(task: Task, labels: np.ndarray, predicted: np.ndarray) -> dict:
    """Return the metrics that follow from labels and answers alone, and their 95 % `intervals`."""
    metrics = [metric for metric in metrics_with_interval(task) if metric.from_answers]
    no_loss = np.empty(0)
    return with_intervals(task, Scores(labels, predicted, labels == predicted, no_loss), metrics)


def all_metrics(task: Task, scores: Scores) -> dict:
    """Return all metrics of rows as a report has them, and the 95 % `intervals` of those that have one."""
    metrics = measure(task, scores)
    metrics["intervals"] = with_intervals(task, scores, metrics_with_interval(task))["intervals"]
    return metrics


def differences(task: Task, scores_a: Scores, scores_b: Scores) -> dict[str, tuple[float, Interval]]:
    """Return by how much the compared metrics of B are above those of A, of the same rows in the same order,
    with 95 % paired bootstrap intervals: both are drawn together, so what they share cancels."""
    metrics = compared_metrics(task)
    changes = {}
    for resampled_metric in resampled_metrics(task, [scores_a, scores_b], [-1.0, 1.0], metrics):
        value_a, value_b = resampled_metric.values
        changes[resampled_metric.metric.key] = (value_b - value_a, interval_of(resampled_metric.draws))
    return changes


def seed_variance(task: Task, scores: Sequence[Scores]) -> dict[str, dict]:
    """Return how far the compared metrics vary over `scores` of the same rows by several seeds, and how far
    their mean varies over resamples of the rows, which are the same for all seeds."""
    weights = [1 / len(scores)] * len(scores)
    spreads = {}
    for resampled_metric in resampled_metrics(task, scores, weights, compared_metrics(task)):
        values = resampled_metric.values
        draws = resampled_metric.draws
        seed_deviation = 0.0
        if len(values) > 1:
            seed_deviation = float(np.std(values, ddof=1))
        spreads[resampled_metric.metric.key] = {
            "mean": float(np.mean(values)),
            "values": values,
            "seed_standard_deviation": seed_deviation,
            "sampling_standard_deviation": float(draws.std(ddof=1)),
            "sampling_interval": list(interval_of(draws)),
        }
    return spreads
