"""How far metrics would move with other rows, another model or another seed, by drawing the rows again.

Drawing rows with replacement is drawing how often each cell of a table is chosen, where the rows of a cell
are alike. So a million rows cost no more than their table: the answers that differ for accuracy and macro F1;
narrow ranges of values for a mean; bins of confidence, right and wrong, for the calibration error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..tasks.task import Scores, Task
from .confidence import bin_of_rows
from .metrics import Answers, Drawn, Metric, distinct_rows, measure, metrics_of, ranked

LEVEL = 0.95
RESAMPLES = 1000
MIN_RESAMPLES = 200  # of tables with very many cells
MAX_DRAWS = 20_000_000  # cells x resamples
BLOCK_DRAWS = 2_000_000  # of them in memory at once
VALUE_CELLS = 2048  # of the values of a mean
RANK_CELLS = 500  # of the probability of the rarer of two classes
FINE_BINS = 20  # cells of confidence in a bin of the calibration error

Interval = tuple[float, float]


def resampled(
    counts: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], generator: np.random.Generator
) -> np.ndarray:
    """Return a statistic, (..., num_resamples), of cells that are drawn again; `counts` (num_cells,) are
    their rows. `statistic` gets a block of counts, (num_resamples, num_cells)."""
    total = counts.sum()
    left = int(np.clip(MAX_DRAWS // len(counts), MIN_RESAMPLES, RESAMPLES))
    block, values = max(1, BLOCK_DRAWS // len(counts)), []
    while left:
        size = min(block, left)
        values.append(statistic(generator.multinomial(total, counts / total, size)))
        left -= size
    return np.concatenate(values, axis=-1)


def percentiles(figures: np.ndarray) -> Interval:
    """Return the percentiles of resampled figures between which 95 % of them are."""
    low, high = np.quantile(figures, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def resampled_means(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the means of resamples of `values`, (num_rows,); equal values make one resample."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.array([low, low])
    cells = ((values - low) * ((VALUE_CELLS - 1) / (high - low))).astype(np.int64)
    counts = np.bincount(cells, minlength=VALUE_CELLS)
    sums = np.bincount(cells, weights=values, minlength=VALUE_CELLS)
    means, counts = sums[counts > 0] / counts[counts > 0], counts[counts > 0]
    return resampled(counts, lambda drawn: drawn @ means, generator) / len(values)


def calibration_interval(
    confidence: np.ndarray, correct: np.ndarray, generator: np.random.Generator
) -> Interval:
    """Return the interval of the expected calibration error; `confidence` and `correct` are (num_rows,)."""
    bins = bin_of_rows(confidence)
    num_bins = int(bins.max()) + 1
    ranks = np.argsort(np.argsort(confidence, kind="stable"), kind="stable")
    fine = bins * num_bins * FINE_BINS + ranks * (num_bins * FINE_BINS) // len(confidence)
    cells, inverse, counts = np.unique(fine * 2 + correct, return_inverse=True, return_counts=True)
    # Mean confidence - correct
    gaps = np.bincount(inverse, weights=confidence) / counts - cells % 2
    in_bin = np.zeros((len(cells), num_bins))
    in_bin[np.arange(len(cells)), cells // 2 // (num_bins * FINE_BINS)] = gaps / len(confidence)
    figure = float(np.abs(counts @ in_bin).sum())
    low, high = percentiles(resampled(counts, lambda drawn: np.abs(drawn @ in_bin).sum(axis=1), generator))
    return max(0.0, 2 * figure - high), max(0.0, 2 * figure - low)


def answer_intervals(
    task: Task, labels: np.ndarray, predicted: np.ndarray, seed: int = 0
) -> dict[str, Interval]:
    """Return the 95 % intervals of the metrics that follow from labels and predictions alone."""
    metrics = _counted(task)
    if not metrics:
        return {}
    distinct, counts = distinct_rows(labels, predicted)
    answers = Answers(task, *distinct, counts)
    drawn = resampled(
        counts, lambda block: _values(metrics, Drawn(answers, block)), np.random.default_rng(seed)
    )
    measured = _values(metrics, Drawn(answers, counts[None]))[:, 0]
    return {
        metric.key: percentiles(
            np.clip(values + (value - values.mean()), 0, 1) if metric.is_centred else values
        )
        for metric, values, value in zip(metrics, drawn, measured, strict=True)
    }


def intervals(task: Task, scores: Scores, seed: int = 0) -> dict[str, Interval]:
    """Return the 95 % intervals of all metrics of a task that have one."""
    ends, generator = (
        answer_intervals(task, scores.labels, scores.predicted, seed),
        np.random.default_rng(seed),
    )
    shown = [metric for metric in metrics_of(task) if metric.has_interval]
    for metric in shown:
        if metric.of_rows:
            ends[metric.key] = percentiles(resampled_means(metric.of_rows(scores), generator))
        elif metric.of_confidence:
            ends[metric.key] = calibration_interval(scores.confidence, scores.correct, generator)
    if ranking := [metric for metric in shown if metric.of_ranking]:
        counts, tables = ranked(scores.is_rare, ((1 - scores.rare_chance) * RANK_CELLS).astype(np.int64))

        def measured(block: np.ndarray) -> np.ndarray:
            in_cells = tables(block)
            return np.stack([metric.of_ranking(*in_cells) for metric in ranking])

        drawn = resampled(counts, measured, generator)
        ends |= {metric.key: percentiles(values) for metric, values in zip(ranking, drawn, strict=True)}
    return {metric.key: ends[metric.key] for metric in shown}


def all_metrics(task: Task, scores: Scores) -> dict:
    """Return all metrics of rows as a report has them, and their `intervals` by key."""
    ends = {key: list(interval) for key, interval in intervals(task, scores).items()}
    return measure(task, scores) | {"intervals": ends}


def differences(task: Task, one: Scores, other: Scores) -> dict[str, tuple[float, Interval]]:
    """Return by how much the compared metrics of `other` are above those of `one`, with 95 % paired bootstrap
    intervals. Both are of the same rows, in the same order, and drawn together: what they share cancels."""
    return {
        key: (second - first, percentiles(drawn))
        for key, (first, second), drawn in drawn_together(task, [one, other], np.array([-1.0, 1.0]))
    }


def seed_variance(task: Task, scores: Sequence[Scores]) -> dict[str, dict]:
    """Return how far the compared metrics vary over `scores` of the same rows by several seeds: the mean, the
    values, and two standard deviations: of a single seed's metric on the same rows, and of the mean over
    resamples of the rows, with its 95 % bootstrap interval. A resample has the same rows for all seeds."""
    weights = np.full(len(scores), 1 / len(scores))
    return {
        key: {
            "mean": float(np.mean(values)),
            "values": values,
            "seed_standard_deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
            "sampling_standard_deviation": float(drawn.std(ddof=1)),
            "sampling_interval": list(percentiles(drawn)),
        }
        for key, values, drawn in drawn_together(task, scores, weights)
    }


def drawn_together(
    task: Task, scores: Sequence[Scores], weights: np.ndarray
) -> Iterator[tuple[str, list[float], np.ndarray]]:
    """Yield each compared metric's key, its value of each of `scores`, which are of the same rows, and the
    sum of these, times `weights`, of rows that are drawn again, (num_resamples,)."""
    generator, metrics = np.random.default_rng(0), [one for one in _counted(task) if one.compared]
    if metrics:
        (truth, *decided), counts = distinct_rows(scores[0].labels, *(of.predicted for of in scores))
        answers = [Answers(task, truth, of, counts) for of in decided]

        def combined(block: np.ndarray) -> np.ndarray:
            return np.tensordot(weights, [_values(metrics, Drawn(of, block)) for of in answers], 1)

        drawn = resampled(counts, combined, generator)
        measured = np.stack([_values(metrics, Drawn(of, counts[None]))[:, 0] for of in answers], axis=1)
        for metric, values, of_metric in zip(metrics, measured, drawn, strict=True):
            yield metric.key, values.tolist(), of_metric
    for metric in metrics_of(task):
        if metric.of_rows and metric.compared:
            of_rows = [metric.of_rows(of) for of in scores]
            means = [float(of.mean()) for of in of_rows]
            yield metric.key, means, resampled_means(np.tensordot(weights, of_rows, 1), generator)


def _counted(task: Task) -> list[Metric]:
    """Return the metrics that follow from labels and predictions alone, and have an interval."""
    return [metric for metric in metrics_of(task) if metric.of_answers and metric.has_interval]


def _values(metrics: list[Metric], drawn: Any) -> np.ndarray:
    """Return the metrics of drawn rows, (num_metrics, num_resamples)."""
    return np.stack([metric.of_answers(drawn) for metric in metrics])
