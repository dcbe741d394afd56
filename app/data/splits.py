"""Rows of one table -> train, dev and test: which row ids each split has."""

from __future__ import annotations

import random

import numpy as np

from app.errors import InputError


def split_sizes(num_rows: int, dev_size: float, test_size: float) -> tuple[int, int]:
    """Return the numbers of dev and test rows; sizes below 1 are shares of `num_rows`, of at least one row unless 0.

    Raises InputError where nothing is left to train on.
    """
    dev, test = (
        int(size) if size >= 1 or size == 0 else max(1, round(num_rows * size)) for size in (dev_size, test_size)
    )
    if dev + test >= num_rows:
        raise InputError(
            f"the train file must keep rows to train on: it has {num_rows:,}, and dev_size {dev_size:g} "
            f"and test_size {test_size:g} take {dev + test:,}; make them smaller"
        )
    return dev, test


def random_split(num_rows: int, dev: int, test: int, seed: int) -> dict[str, np.ndarray]:
    """Shuffle all row ids as `random.Random(seed).shuffle` does; test is the end, dev stands before it."""
    rows = list(range(num_rows))
    random.Random(seed).shuffle(rows)
    rows = np.array(rows, dtype=np.int64)
    first_dev, first_test = num_rows - dev - test, num_rows - test
    return {"train": rows[:first_dev], "dev": rows[first_dev:first_test], "test": rows[first_test:]}


def stratified_split(
    labels: np.ndarray, hashes: np.ndarray, dev: int, test: int, seed: int, names: list[str]
) -> dict[str, np.ndarray]:
    """Split so that each class keeps its share, and all rows of one text stay on one side.

    `labels` (num_rows,) class ids, `hashes` (num_rows,) of the texts, `names` the classes for messages. A text with
    conflicting labels counts as the class of its first row. Each side has a text of each class; otherwise sizes are met
    to within a few rows. Raises InputError for a class with fewer different texts than there are sides.
    """
    wanted = {name: size for name, size in (("test", test), ("dev", dev)) if size}
    parts: dict[str, list[np.ndarray]] = {"train": [], "dev": [], "test": []}
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.r_[np.flatnonzero(np.diff(group[order], prepend=-1)), len(order)]
    sizes = np.diff(starts)
    generator = np.random.default_rng(seed)
    shares = {name: size / len(labels) for name, size in wanted.items()}
    carried = dict.fromkeys(wanted, 0.0)
    # Small classes first: where one gives more than its share, so as to be on each side, the large ones give less.
    for label in np.argsort(np.bincount(labels, minlength=len(names)), kind="stable"):
        groups = np.flatnonzero(labels[first] == label)
        if 0 < len(groups) <= len(wanted):
            raise InputError(
                f"a stratified split needs {len(wanted) + 1} different texts of each class, one for each side; class "
                f"'{names[label]}' has {len(groups)}; add rows, set --data.split random, or give separate files"
                + _doubt(len(names), len(labels), only_first_row=first[groups].tolist() == [0])
            )
        for name, dealt in _deal(generator.permutation(groups), sizes, shares, carried).items():
            parts[name].append(dealt)
    return {
        name: np.sort(_rows_of(np.concatenate(groups), order, starts)) if groups else np.empty(0, np.int64)
        for name, groups in parts.items()
    }


def _deal(
    groups: np.ndarray, sizes: np.ndarray, shares: dict[str, float], carried: dict[str, float]
) -> dict[str, np.ndarray]:
    """Deal the texts of one class to the sides, each its share of the rows and at least one text.

    `groups` are ids of texts in random order, `sizes` the rows of every text; `carried`, the rows that a side is still
    owed by the classes before this one, is updated.
    """
    num_rows = int(sizes[groups].sum())
    largest = max(1.0, min(shares.values(), default=1.0) * num_rows)
    weight = np.where(sizes[groups] > largest, sizes[groups], 0)  # texts repeated too often for dev or test go last
    groups = groups[np.argsort(weight, kind="stable")]
    dealt, left = {}, groups
    for done, (name, share) in enumerate(shares.items()):
        target = share * num_rows + carried[name]
        count = int(np.searchsorted(np.cumsum(sizes[left]), target + 0.5, side="right"))
        count = min(max(1, count), len(left) - (len(shares) - done)) if len(left) else 0
        dealt[name], left = left[:count], left[count:]
        carried[name] = target - int(sizes[dealt[name]].sum())
    return dealt | {"train": left}


def _doubt(num_classes: int, num_rows: int, only_first_row: bool) -> str:
    """Return a question where the classes look like something else: a header, or a column of texts."""
    if num_classes > num_rows / 2:
        return "; or is data.label_column the wrong column?"
    return "; or is the first line a header (--data.header true)?" if only_first_row else ""


def _rows_of(groups: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the row ids of all the rows in `groups`."""
    lengths = starts[groups + 1] - starts[groups]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return order[np.repeat(starts[groups], lengths) + within].astype(np.int64)
