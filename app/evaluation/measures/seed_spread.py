"""The same rows by models of several seeds: how much a seed moves a figure, and apart from that, how much
other rows would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .intervals import Interval, percentiles, resampled_counts

Figures = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Spread:
    """One figure. `values` has that of each seed, `interval` is the 95 % bootstrap interval of their mean
    over the rows, and `sampling` the standard deviation of that mean over the resampled rows.
    """

    values: list[float]
    interval: Interval
    sampling: float

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def of_seeds(self) -> float:
        """The standard deviation of a single seed's figure, on the same rows."""
        return float(np.std(self.values, ddof=1))

    def to_dict(self) -> dict:
        """Return the figures as JSON has them."""
        return {
            "mean": self.mean,
            "values": self.values,
            "seed_standard_deviation": self.of_seeds,
            "sampling_standard_deviation": self.sampling,
            "sampling_interval": list(self.interval),
        }


def seed_spread(
    labels: np.ndarray, predicted: list[np.ndarray], num_labels: int, seed: int = 0
) -> dict[str, Spread]:
    """Return the spread of `accuracy` and `macro_f1`; `labels` (num_rows,) and each of `predicted`
    (num_rows,) are class ids.

    A resample has the same rows for all seeds, so what is left of their difference is the seeds'.
    """
    from scipy.sparse import csr_array

    columns, counts = np.unique(np.stack([labels, *predicted]), axis=1, return_counts=True)
    true, order, shape = columns[0], np.arange(columns.shape[1]), (columns.shape[1], num_labels)
    ones = np.ones(len(order))
    of_label = csr_array((ones, (order, true)), shape)
    tables = [
        (
            csr_array(((true == chosen) * 1.0, (order, true)), shape),
            of_label + csr_array((ones, (order, chosen)), shape),
        )
        for chosen in columns[1:]
    ]

    def figures(drawn: np.ndarray) -> np.ndarray:
        """Return accuracy and macro F1 of each seed, (num_seeds, 2, num_resamples), of counts (num_resamples,
        num_cells)."""
        scores = []
        for right, both in tables:
            found, sizes = drawn @ right, drawn @ both
            scores.append([found.sum(axis=1) / len(labels), (2 * found / np.maximum(sizes, 1)).mean(axis=1)])
        return np.array(scores)

    return spread_of(figures, counts, ("accuracy", "macro_f1"), seed)


def spread_of(figures: Figures, counts: np.ndarray, names: Sequence[str], seed: int = 0) -> dict[str, Spread]:
    """Return the spread of the figures of `names`; `counts` (num_cells,) rows of each cell of a table.

    `figures` gives those of each seed, (num_seeds, num_names, num_resamples), for counts (num_resamples,
    num_cells).
    """
    generator = np.random.default_rng(seed)
    measured = figures(counts[None])[:, :, 0]
    means = np.concatenate(
        [figures(drawn).mean(axis=0) for drawn in resampled_counts(counts, generator)], axis=1
    )
    return {
        name: Spread(measured[:, at].tolist(), percentiles(means[at]), float(means[at].std(ddof=1)))
        for at, name in enumerate(names)
    }
