"""How far metrics would move with other rows, another model or another seed, by resampling the rows.
Everything here follows from the table of metrics and the outcome's `distinct_rows` and `count`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..evaluation.comparison import Comparison, won_and_lost
from ..evaluation.measures.intervals import (
    Interval,
    mean_interval,
    percentiles,
    resampled_counts,
    resampled_means,
)
from .labelled_outcome import LabelledOutcome
from .metrics import Metric


def values(outcome: LabelledOutcome, scores: Any) -> dict[str, float]:
    """Return the metrics of the table that follow from scores, by their keys."""
    by_key = answer_values(outcome, scores.labels, scores.predicted) if counted(outcome) else {}
    for metric in outcome.metrics:
        if metric.of_rows:
            by_key[metric.key] = float(metric.of_rows(scores).mean())
        elif metric.of_scores:
            by_key[metric.key] = metric.of_scores(scores)
    return by_key


def answer_values(outcome: LabelledOutcome, labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the metrics that follow from labels and predictions alone, by their keys."""
    (truth, answers), counts = outcome.distinct_rows(labels, predicted)
    drawn = outcome.count(truth, answers).draw(counts[None])
    return {metric.key: float(metric.of_counts(drawn)[0]) for metric in counted(outcome)}


def counted(outcome: LabelledOutcome) -> list[Metric]:
    """Return the metrics that follow from labels and predictions alone."""
    return [metric for metric in outcome.metrics if metric.of_counts]


def answer_intervals(
    outcome: LabelledOutcome, labels: np.ndarray, predicted: np.ndarray, seed: int = 0
) -> dict[str, Interval]:
    """Return the 95 % intervals of the metrics that follow from labels and predictions alone."""
    (truth, answers), counts = outcome.distinct_rows(labels, predicted)
    rows, generator, metrics = outcome.count(truth, answers), np.random.default_rng(seed), counted(outcome)
    resampled = _resampled(lambda drawn: _values(metrics, rows.draw(drawn)), counts, generator)
    measured = _values(metrics, rows.draw(counts[None]))[:, 0]
    intervals = {}
    for metric, values, value in zip(metrics, resampled, measured, strict=True):
        moved = np.clip(values + (value - values.mean()), 0, 1) if metric.is_centred else values
        intervals[metric.key] = percentiles(moved)
    return intervals


def intervals(outcome: LabelledOutcome, scores: Any, seed: int = 0) -> dict[str, Interval]:
    """Return the 95 % intervals of all metrics of an outcome that have one."""
    ends = answer_intervals(outcome, scores.labels, scores.predicted, seed) if counted(outcome) else {}
    generator = np.random.default_rng(seed)
    for metric in outcome.metrics:
        if metric.of_rows:
            ends[metric.key] = mean_interval(metric.of_rows(scores), generator)
        elif metric.of_scores:
            ends[metric.key] = metric.interval(scores, generator)
    return {metric.key: ends[metric.key] for metric in outcome.metrics if metric.has_interval}


def all_metrics(outcome: LabelledOutcome, scores: Any) -> dict:
    """Return all metrics of rows as a report has them, and their `intervals` by key."""
    measured = outcome.measure(scores)
    others = {key: value for key, value in values(outcome, scores).items() if key not in measured}
    ends = {key: list(interval) for key, interval in intervals(outcome, scores).items()}
    return measured | others | {"intervals": ends}


def compare(outcome: LabelledOutcome, one: Any, other: Any, seed: int = 0) -> Comparison:
    """Return how the scores `other` do against `one`; both are of the same rows, in the same order. Both are
    drawn together, so what they share cancels."""
    differences = {
        key: (second - first, percentiles(resampled))
        for key, (first, second), resampled in _resampled_together(
            outcome, [one, other], lambda values: values[1] - values[0], seed
        )
    }
    return Comparison(one, other, *won_and_lost(one.correct, other.correct), differences)


def seed_variance(outcome: LabelledOutcome, scores: Sequence[Any], seed: int = 0) -> dict[str, dict]:
    """Return how far the compared metrics vary over `scores` of the same rows by several seeds: the mean, the
    values, and two standard deviations: of a single seed's metric on the same rows, and of the mean over
    resamples of the rows, with its 95 % bootstrap interval. A resample has the same rows for all seeds."""
    return {
        key: {
            "mean": float(np.mean(values)),
            "values": values,
            "seed_standard_deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
            "sampling_standard_deviation": float(resampled.std(ddof=1)),
            "sampling_interval": list(percentiles(resampled)),
        }
        for key, values, resampled in _resampled_together(
            outcome, scores, lambda values: np.mean(values, axis=0), seed
        )
    }


def _resampled_together(
    outcome: LabelledOutcome, scores: Sequence[Any], combine: Callable, seed: int
) -> Iterator[tuple[str, list[float], np.ndarray]]:
    """Yield each compared metric's key, its value of each of `scores`, which are of the same rows, and what
    `combine` makes of a list of such values, of rows that are drawn again, (num_resamples,)."""
    generator, metrics = np.random.default_rng(seed), [one for one in counted(outcome) if one.compared]
    if metrics:
        predicted = [of.predicted for of in scores]
        (truth, *answers), counts = outcome.distinct_rows(scores[0].labels, *predicted)
        rows = [outcome.count(truth, of) for of in answers]

        def combined(drawn: np.ndarray) -> np.ndarray:
            return combine([_values(metrics, of.draw(drawn)) for of in rows])

        resampled = _resampled(combined, counts, generator)
        measured = np.stack([_values(metrics, of.draw(counts[None]))[:, 0] for of in rows], axis=1)
        for metric, values, drawn in zip(metrics, measured, resampled, strict=True):
            yield metric.key, values.tolist(), drawn
    for metric in outcome.metrics:
        if metric.of_rows and metric.compared:
            of_rows = [metric.of_rows(of) for of in scores]
            values = [float(of.mean()) for of in of_rows]
            yield metric.key, values, resampled_means(combine(of_rows), generator)


def _values(metrics: list[Metric], drawn: Any) -> np.ndarray:
    """Return the metrics of drawn rows, (num_metrics, num_resamples)."""
    return np.stack([metric.of_counts(drawn) for metric in metrics])


def _resampled(
    values: Callable[[np.ndarray], np.ndarray], counts: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return the values of all resamples, (num_metrics, num_resamples)."""
    return np.concatenate([values(drawn) for drawn in resampled_counts(counts, generator)], axis=1)
