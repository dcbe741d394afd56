"""How far metrics would move with other rows, another model or another seed, by drawing the rows again.

Rows that are alike are one cell of a table, and drawing rows with replacement is drawing how often each cell
is chosen. So a million rows cost no more than their table. Its cells are the answers that differ; narrow
ranges of values for a mean; bins of confidence, right and wrong, for the calibration error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..tasks.task import Scores, Task
from .confidence import LEVEL, bin_of_rows
from .metrics import Drawn, Metric, Ranks, distinct_rows, measure, metrics_of, ranked

RESAMPLES = 1000
MIN_RESAMPLES = 200  # resamples of a table with very many cells
MAX_DRAWS = 20_000_000  # cells x resamples
BLOCK_DRAWS = 2_000_000  # cells x resamples in memory at once
VALUE_CELLS = 2048  # cells of the values of a mean
RANK_CELLS = 500  # cells of the probability of the rarer of two classes
FINE_BINS = 20  # cells of confidence in a bin of the calibration error

Interval = tuple[float, float]


def resampled(
    counts: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], generator: np.random.Generator
) -> np.ndarray:
    """Return a statistic, (..., num_resamples), of rows that are drawn again; `counts` (num_cells,) is how
    many of them each cell has. `statistic` gets a block of counts, (num_resamples, num_cells)."""
    total, block = counts.sum(), max(1, BLOCK_DRAWS // len(counts))
    most, values = int(np.clip(MAX_DRAWS // len(counts), MIN_RESAMPLES, RESAMPLES)), []
    for start in range(0, most, block):
        drawn = generator.multinomial(total, counts / total, min(block, most - start))
        values.append(statistic(drawn))
    return np.concatenate(values, axis=-1)


def percentiles(figures: np.ndarray) -> Interval:
    return tuple(np.quantile(figures, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist())


def resampled_means(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the means, (num_resamples,), of resamples of `values`, (num_rows,). Equal values are not drawn:
    their mean is returned twice."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return np.array([low, low])
    cells = ((values - low) * ((VALUE_CELLS - 1) / (high - low))).astype(np.int64)
    counts, sums = np.bincount(cells), np.bincount(cells, weights=values)
    means, counts = sums[counts > 0] / counts[counts > 0], counts[counts > 0]
    return resampled(counts, lambda drawn: drawn @ means, generator) / len(values)


def calibration_interval(
    confidence: np.ndarray, correct: np.ndarray, generator: np.random.Generator
) -> Interval:
    bins = bin_of_rows(confidence)
    num_bins = int(bins.max()) + 1
    ranks = np.argsort(np.argsort(confidence, kind="stable"), kind="stable")
    num_fine = num_bins * FINE_BINS
    fine = bins * num_fine + ranks * num_fine // len(confidence)
    cells, inverse, counts = np.unique(fine * 2 + correct, return_inverse=True, return_counts=True)
    # A cell's gap is its mean confidence minus 1 where its rows are right; the number of such a cell is odd
    gaps = np.bincount(inverse, weights=confidence) / counts - cells % 2
    in_bin = np.zeros((len(cells), num_bins))
    in_bin[np.arange(len(cells)), cells // 2 // num_fine] = gaps / len(confidence)
    error = float(np.abs(counts @ in_bin).sum())
    low, high = percentiles(resampled(counts, lambda drawn: np.abs(drawn @ in_bin).sum(axis=1), generator))
    # Noise makes a sum of absolute values larger, so the interval is mirrored at the error itself
    return max(0.0, 2 * error - high), max(0.0, 2 * error - low)


def drawn_answers(
    task: Task, labels: np.ndarray, predicted: Sequence[np.ndarray], weights: Sequence[float]
) -> Iterator[tuple[Metric, list[float], np.ndarray]]:
    """Yield what `drawn_together` does of the metrics that follow from labels and answers alone."""
    metrics = [metric for metric in metrics_of(task) if metric.of_answers and metric.has_interval]
    (truth, *decided), counts = distinct_rows(labels, *predicted)
    all_rows = [Drawn(task, truth, of, counts[None]) for of in decided]

    def values(block: np.ndarray) -> np.ndarray:
        drawn = (of.again(block) for of in all_rows)
        return np.array([[metric.of_answers(of) for metric in metrics] for of in drawn])

    def summed(block: np.ndarray) -> np.ndarray:
        return np.tensordot(weights, values(block), 1)

    drawn = resampled(counts, summed, np.random.default_rng(0))
    yield from zip(metrics, values(counts[None])[..., 0].T.tolist(), drawn, strict=True)


def answer_metrics(task: Task, labels: np.ndarray, predicted: np.ndarray) -> dict:
    """Return the metrics that follow from labels and answers alone, and their 95 % `intervals`."""
    values, ends = {}, {}
    for metric, [value], drawn in drawn_answers(task, labels, [predicted], [1.0]):
        values[metric.key] = value
        moved = np.clip(drawn + (value - drawn.mean()), 0, 1) if metric.is_centred else drawn
        ends[metric.key] = list(percentiles(moved))
    return values | {"intervals": ends}


def all_metrics(task: Task, scores: Scores) -> dict:
    """Return all metrics of rows as a report has them, and the 95 % `intervals` of those that have one."""
    ends = answer_metrics(task, scores.labels, scores.predicted)["intervals"]
    generator = np.random.default_rng(0)
    shown = [metric for metric in metrics_of(task) if metric.has_interval]
    for metric in shown:
        if metric.of_rows:
            ends[metric.key] = percentiles(resampled_means(metric.of_rows(scores), generator))
        elif metric.of_confidence:
            ends[metric.key] = calibration_interval(scores.confidence, scores.correct, generator)
    if ranking := [metric for metric in shown if metric.of_ranks]:
        counts = ranked(scores.is_rare, ((1 - scores.rare_chance) * RANK_CELLS).astype(np.int64))

        def values(block: np.ndarray) -> np.ndarray:
            ranks = Ranks(block, task.recall_at)
            return np.array([metric.of_ranks(ranks) for metric in ranking])

        drawn = resampled(counts, values, generator)
        ends |= {metric.key: percentiles(of) for metric, of in zip(ranking, drawn, strict=True)}
    return measure(task, scores) | {"intervals": {metric.key: list(ends[metric.key]) for metric in shown}}


def differences(task: Task, one: Scores, other: Scores) -> dict[str, tuple[float, Interval]]:
    """Return by how much the compared metrics of `other` are above those of `one`, of the same rows in the
    same order, with 95 % paired bootstrap intervals: both are drawn together, so what they share cancels."""
    return {
        key: (second - first, percentiles(drawn))
        for key, (first, second), drawn in drawn_together(task, [one, other], [-1.0, 1.0])
    }


def seed_variance(task: Task, scores: Sequence[Scores]) -> dict[str, dict]:
    """Return how far the compared metrics vary over `scores` of the same rows by several seeds, and how far
    their mean varies over resamples of the rows, which are the same for all seeds."""
    return {
        key: {
            "mean": float(np.mean(values)),
            "values": values,
            "seed_standard_deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
            "sampling_standard_deviation": float(drawn.std(ddof=1)),
            "sampling_interval": list(percentiles(drawn)),
        }
        for key, values, drawn in drawn_together(task, scores, [1 / len(scores)] * len(scores))
    }


def drawn_together(
    task: Task, scores: Sequence[Scores], weights: Sequence[float]
) -> Iterator[tuple[str, list[float], np.ndarray]]:
    """Yield each compared metric's key, its value for each of `scores`, which are of the same rows, and the
    sum of these values times `weights` for rows that are drawn again, (num_resamples,)."""
    predicted = [of.predicted for of in scores]
    for metric, values, drawn in drawn_answers(task, scores[0].labels, predicted, weights):
        yield metric.key, values, drawn
    generator = np.random.default_rng(0)
    for metric in metrics_of(task):
        if metric.of_rows and metric.compared:
            of_rows = [metric.of_rows(of) for of in scores]
            means = [float(of.mean()) for of in of_rows]
            yield metric.key, means, resampled_means(np.tensordot(weights, of_rows, 1), generator)
