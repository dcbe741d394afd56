"""A batch plan that draws each class equally often: a function of (classes, batch_size, seed, step)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .plan import BatchPlan


@dataclass(frozen=True, eq=False)
class BalancedPlan(BatchPlan):
    """Global batches of `num_rows` row positions an epoch, as many of each class, up to one.

    `classes` (num_rows,) int64 is the class of each row. Of a large class an epoch has some rows, drawn for
    this epoch; the rows of a small one come several times, each as often as the others, up to one.
    """

    classes: np.ndarray

    drawn = ", each class drawn equally often"

    def order(self, epoch: int) -> np.ndarray:
        kept = self.__dict__.get("kept")
        if kept is None or kept[0] != epoch:
            kept = (epoch, balanced_order(self.classes, [self.seed, epoch]))
            self.__dict__["kept"] = kept
        return kept[1]


def balanced_order(classes: np.ndarray, seed: list[int]) -> np.ndarray:
    """Return as many row positions as rows, (num_rows,) int64, random, with equal shares of classes."""
    generator = np.random.default_rng(seed)
    _, class_of_row, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    by_class = np.split(np.argsort(class_of_row, kind="stable"), np.cumsum(sizes)[:-1])
    share, over = divmod(len(classes), len(sizes))
    with_one_more = set(generator.permutation(len(sizes))[:over].tolist())
    drawn = []
    for number, rows in enumerate(by_class):
        times, rest = divmod(share + (number in with_one_more), len(rows))
        drawn += [np.tile(rows, times), generator.permutation(rows)[:rest]]
    return generator.permutation(np.concatenate(drawn))


def build_plan(num_rows: int, batch_size: int, seed: int, classes: np.ndarray | None = None) -> BatchPlan:
    """Return the plan of a training; with `classes`, (num_rows,), each is drawn equally often."""
    if classes is None:
        return BatchPlan(num_rows, batch_size, seed)
    return BalancedPlan(num_rows, batch_size, seed, np.asarray(classes))
