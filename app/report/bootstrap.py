"""How far metrics would move with other rows, another model or another seed, by drawing the rows again.

Rows that are alike are one cell of a table, and drawing rows with replacement is drawing how often each cell
is chosen. So a million rows cost no more than their table. Its cells are the answers that differ, or narrow
ranges of values for a mean, or of ranks by the probability of the rarer of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..tasks.task import Scores, Task
from .confidence import LEVEL
from .metrics import Drawn, Metric, distinct_rows, down_to, measure, metrics_of, ranked

RESAMPLES = 1000
MIN_RESAMPLES = 200  # resamples of a table with very many cells
MAX_DRAWS = 20_000_000  # cells x resamples
BLOCK_DRAWS = 2_000_000  # cells x resamples in memory at once
VALUE_CELLS = 2048  # cells of the values of a mean
RANK_CELLS = 500  # cells of the ranks by the probability of the rarer of two classes

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


def rank_cells(is_rare: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return the cell of each row, (num_rows,) int64, the smaller the more probable it is.

    Up to `RANK_CELLS` cells lose nothing: between two rows of the rarer class (`is_rare`) only the number of
    other rows matters. More of them are merged with their neighbours, by rank and not by probability, so that
    no cell has much of either class, however close together the `chances` of rows are.
    """
    _, ranks = np.unique(-chances, return_inverse=True)
    num_rare = np.bincount(ranks, weights=is_rare)
    begins_cell = num_rare > 0
    begins_cell[1:] |= num_rare[:-1] > 0
    cells = np.cumsum(begins_cell)[ranks]
    if len(np.unique(cells)) <= RANK_CELLS:
        return cells
    share = np.bincount(cells, weights=is_rare) / max(is_rare.sum(), 1)
    share += np.bincount(cells, weights=~is_rare) / max((~is_rare).sum(), 1)
    share_before = np.cumsum(share) - share
    return (share_before * (RANK_CELLS / share.sum())).astype(np.int64)[cells]


def drawn_together(
    task: Task, scores: Sequence[Scores], weights: Sequence[float], metrics: Sequence[Metric] = ()
) -> Iterator[tuple[Metric, list[float], np.ndarray]]:
    """Yield each metric (without `metrics`: those that are compared), its value for each of `scores`, which
    are of the same rows, and the sum of these values times `weights` for redrawn rows, (num_resamples,)."""
    if not metrics:
        metrics = [metric for metric in metrics_of(task) if metric.compared]
    by_answers = [metric for metric in metrics if metric.of_answers]
    by_scores = [metric for metric in metrics if metric.of_scores]
    by_ranks = [metric for metric in metrics if metric.of_ranks]
    predictions = [model_scores.predicted for model_scores in scores]
    (truth, *answers), counts = distinct_rows(scores[0].labels, *predictions)
    models = [Drawn(task, truth, model_answers, counts[None]) for model_answers in answers]

    def answer_values(block: np.ndarray) -> np.ndarray:
        """Return the metrics of each model, (num_models, num_metrics, num_resamples)."""
        values = []
        for model in models:
            model.counts = block
            values.append([metric.of_answers(model) for metric in by_answers])
        return np.array(values)

    def weighted_answer_values(block: np.ndarray) -> np.ndarray:
        return np.tensordot(weights, answer_values(block), 1)

    def rank_values(block: np.ndarray) -> np.ndarray:
        right, shown = down_to(block)
        return np.array([metric.of_ranks(right, shown, metric.level) for metric in by_ranks])

    values = answer_values(counts[None])[..., 0].T.tolist()
    drawn = resampled(counts, weighted_answer_values, np.random.default_rng(0))
    yield from zip(by_answers, values, drawn, strict=True)
    generator = np.random.default_rng(0)
    for metric in by_scores:
        row_values = [metric.of_scores(model_scores) for model_scores in scores]
        means = [float(model_values.mean()) for model_values in row_values]
        yield metric, means, resampled_means(np.tensordot(weights, row_values, 1), generator)
    if by_ranks:
        # These are not compared, so that there is one model only
        is_rare = scores[0].labels == models[0].rare
        counts = ranked(is_rare, rank_cells(is_rare, scores[0].rare_chance))
        values = rank_values(counts[None]).tolist()
        drawn = resampled(counts, rank_values, generator)
        yield from zip(by_ranks, values, drawn, strict=True)


def with_intervals(task: Task, scores: Scores, metrics: Sequence[Metric]) -> dict:
    """Return the values of metrics, and their 95 % `intervals`."""
    values, ends = {}, {}
    for metric, [value], drawn in drawn_together(task, [scores], [1.0], metrics):
        moved = np.clip(drawn + (value - drawn.mean()), 0, 1) if metric.is_centred else drawn
        values[metric.key], ends[metric.key] = value, list(percentiles(moved))
    return values | {"intervals": {metric.key: ends[metric.key] for metric in metrics}}


def answer_metrics(task: Task, labels: np.ndarray, predicted: np.ndarray) -> dict:
    """Return the metrics that follow from labels and answers alone, and their 95 % `intervals`."""
    shown = [metric for metric in metrics_of(task) if metric.of_answers and metric.has_interval]
    return with_intervals(task, Scores(labels, predicted, labels == predicted, np.empty(0)), shown)


def all_metrics(task: Task, scores: Scores) -> dict:
    """Return all metrics of rows as a report has them, and the 95 % `intervals` of those that have one."""
    shown = [metric for metric in metrics_of(task) if metric.has_interval]
    return measure(task, scores) | {"intervals": with_intervals(task, scores, shown)["intervals"]}


def differences(task: Task, one: Scores, other: Scores) -> dict[str, tuple[float, Interval]]:
    """Return by how much the compared metrics of `other` are above those of `one`, of the same rows in the
    same order, with 95 % paired bootstrap intervals: both are drawn together, so what they share cancels."""
    drawn = drawn_together(task, [one, other], [-1.0, 1.0])
    return {metric.key: (values[1] - values[0], percentiles(of)) for metric, values, of in drawn}


def seed_variance(task: Task, scores: Sequence[Scores]) -> dict[str, dict]:
    """Return how far the compared metrics vary over `scores` of the same rows by several seeds, and how far
    their mean varies over resamples of the rows, which are the same for all seeds."""
    weights = [1 / len(scores)] * len(scores)
    return {
        metric.key: {
            "mean": float(np.mean(values)),
            "values": values,
            "seed_standard_deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
            "sampling_standard_deviation": float(drawn.std(ddof=1)),
            "sampling_interval": list(percentiles(drawn)),
        }
        for metric, values, drawn in drawn_together(task, scores, weights)
    }
