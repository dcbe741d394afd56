"""Rows of one table -> train, dev and test: which row ids each split has."""

from __future__ import annotations

import random

import numpy as np

from app.errors import InputError


def split_sizes(num_rows: int, dev_size: float, test_size: float) -> tuple[int, int]:
    """Return the numbers of dev and test rows; sizes below 1 are shares of `num_rows`.

    Raises InputError where nothing is left to train on.
    """
    dev, test = (round(num_rows * size) if size < 1 else int(size) for size in (dev_size, test_size))
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
    conflicting labels counts as the class of its first row. Sizes are met to within a few rows. Raises InputError for a
    class with fewer different texts than there are sides.
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
    for label, label_name in enumerate(names):
        groups = np.flatnonzero(labels[first] == label)
        if 0 < len(groups) <= len(wanted):
            raise InputError(
                f"a stratified split needs {len(wanted) + 1} different texts of each class, one for each side; class "
                f"'{label_name}' has {len(groups)}; add rows, set --data.split random, or give separate files"
            )
        groups = generator.permutation(groups)
        filled = np.cumsum(sizes[groups])
        begin = 0
        for rest, (name, share) in enumerate(shares.items()):
            already = filled[begin - 1] if begin else 0
            target = share * int(sizes[groups].sum()) + carried[name]
            end = (
                begin + max(1, int(np.searchsorted(filled[begin:] - already, target + 0.5, side="right")))
                if len(groups)
                else 0
            )
            end = min(end, len(groups) - (len(shares) - rest))  # at least one text for each side still to come
            taken = int(filled[end - 1] - already) if end > begin else 0
            carried[name] = target - taken  # what one class rounds off, the next makes up for
            parts[name].append(groups[begin:end])
            begin = max(begin, end)
        parts["train"].append(groups[begin:])
    return {
        name: np.sort(_rows_of(np.concatenate(groups), order, starts)) if groups else np.empty(0, np.int64)
        for name, groups in parts.items()
    }


def _rows_of(groups: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the row ids of all the rows in `groups`."""
    lengths = starts[groups + 1] - starts[groups]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return order[np.repeat(starts[groups], lengths) + within].astype(np.int64)
