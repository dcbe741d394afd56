"""Two classifiers on the same rows: which is better, and how sure is that?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from .logits_file import SplitLogits
from .measures.intervals import Interval, mean_interval, percentiles, resampled_counts
from .measures.row_scores import RowScores, score_rows


@dataclass(frozen=True)
class Comparison:
    """B against A on the same rows. `won` and `lost` are positions of rows, increasing: B is right and A
    wrong, and the reverse.

    `differences` are those of the figures, B - A, with their 95 % paired bootstrap intervals; `p_value` is of
    McNemar's exact test.
    """

    one: Any
    other: Any
    won: np.ndarray
    lost: np.ndarray
    differences: dict[str, tuple[float, Interval]]

    @property
    def p_value(self) -> float:
        """How probable a difference between won and lost as large as this is where both are equally good;
        two-sided."""
        return mcnemar(len(self.won), len(self.lost))


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: won and lost rows as tosses of a fair coin."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(won, lost), won + lost, 0.5))) if won + lost else 1.0


def check_same_rows(one: SplitLogits, other: SplitLogits) -> None:
    """Raise InputError unless two runs were evaluated on the same texts with the same labels, in the same
    order."""
    remedy = "compare runs with the same data, split settings and data.split_seed"
    if len(one) != len(other):
        raise InputError(
            f"the runs must have the same test rows, found {len(one):,} and {len(other):,} rows; {remedy}"
        )
    for name, what in (("hashes", "texts"), ("labels", "labels")):
        first, second = (np.asarray(getattr(split, name)).reshape(len(split), -1) for split in (one, other))
        different = int((first != second).any(axis=1).sum())
        if different:
            raise InputError(
                f"the runs must have the same test rows, found other {what} in {different:,} of "
                f"{len(one):,}; {remedy}"
            )


def compare_rows(one: SplitLogits, other: SplitLogits, num_labels: int, seed: int = 0) -> Comparison:
    """Return how `other` does against `one`; raises InputError unless their rows are the same."""
    check_same_rows(one, other)
    first, second = (score_rows(split.labels, split.logits) for split in (one, other))
    generator = np.random.default_rng(seed)
    differences = _differences(first, second, num_labels, generator)
    loss = second.loss - first.loss
    differences["loss"] = (float(loss.mean()), mean_interval(loss, generator))
    return Comparison(first, second, *won_and_lost(first.correct, second.correct), differences)


def won_and_lost(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the rows that only `other` has right, and of those that only `one` has; both
    (num_rows,) bool."""
    return np.flatnonzero(other & ~one), np.flatnonzero(one & ~other)


def _differences(
    one: RowScores, other: RowScores, num_labels: int, generator: np.random.Generator
) -> dict[str, tuple[float, Interval]]:
    """Return the differences of accuracy and macro F1: both are of the same resampled rows, so what they
    share cancels."""
    from scipy.sparse import csr_array

    codes = (one.labels * num_labels + one.predicted) * num_labels + other.predicted
    cells, counts = np.unique(codes, return_counts=True)
    labels, predictions = cells // num_labels**2, (cells // num_labels % num_labels, cells % num_labels)
    order, ones, shape = np.arange(len(cells)), np.ones(len(cells)), (len(cells), num_labels)
    of_label = csr_array((ones, (order, labels)), shape)
    tables = [
        (
            csr_array(((labels == chosen) * 1.0, (order, labels)), shape),
            of_label + csr_array((ones, (order, chosen)), shape),
        )
        for chosen in predictions
    ]

    def figures(drawn: np.ndarray) -> np.ndarray:
        """Return the differences of accuracy and macro F1, (2, num_resamples), of counts (num_resamples,
        num_cells)."""
        scores = []
        for right, both in tables:
            found, sizes = drawn @ right, drawn @ both
            scores.append(
                np.stack([found.sum(axis=1) / len(one), (2 * found / np.maximum(sizes, 1)).mean(axis=1)])
            )
        return scores[1] - scores[0]

    resampled = np.concatenate([figures(drawn) for drawn in resampled_counts(counts, generator)], axis=1)
    measured = figures(counts[None])[:, 0]
    return {
        name: (float(measured[at]), percentiles(resampled[at]))
        for at, name in enumerate(("accuracy", "macro_f1"))
    }
