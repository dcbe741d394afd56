"""Rows of one table -> the row ids of train, dev and test, or of folds; and what the splits have."""

import random
import warnings
from typing import Any

import numpy as np

from ..errors import InputError, shorten
from ..words import _

# Of all texts, may be of classes with fewer texts than splits
RARE_SHARE = 0.1


def split_sizes(num_rows: int, dev_size: float, test_size: float) -> tuple[int, int]:
    """Return the numbers of dev and test rows; a size below 1 is a fraction of `num_rows`, a row or more.
    Raises InputError if no rows would be left to train on."""
    dev, test = (
        int(size) if size >= 1 or size == 0 else max(1, round(num_rows * size))
        for size in (dev_size, test_size)
    )
    if dev + test >= num_rows:
        raise InputError(
            _(
                "the train file must keep rows to train on: it has {rows:,}, and dev_size {dev:g} and "
                "test_size {test:g} take {taken:,}; make them smaller"
            ).format(rows=num_rows, dev=dev_size, test=test_size, taken=dev + test)
        )
    return dev, test


def split_rows(
    form: Any, labels: np.ndarray, hashes: np.ndarray, config: Any, sizes: list[float], names: list[str]
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev and test of one file, as `data.split` says, dev and test of the given
    sizes. `labels` (num_rows, ...) are of the `form`, `hashes` (num_rows,) of the texts."""
    dev, test = split_sizes(len(labels), *sizes)
    if not dev + test:
        return {"train": np.arange(len(labels)), "dev": np.empty(0, np.int64), "test": np.empty(0, np.int64)}
    if config.split == "stratified":
        return form.split(labels, hashes, dev, test, config.split_seed, names)
    return random_split(len(labels), dev, test, config.split_seed)


def random_split(num_rows: int, dev: int, test: int, seed: int) -> dict[str, np.ndarray]:
    """Shuffle all row ids by `random.Random(seed).shuffle`; test is their end, dev the part before it."""
    rows = list(range(num_rows))
    random.Random(seed).shuffle(rows)
    rows = np.array(rows, dtype=np.int64)
    first_dev, first_test = num_rows - dev - test, num_rows - test
    return {"train": rows[:first_dev], "dev": rows[first_dev:first_test], "test": rows[first_test:]}


def stratified_split(
    labels: np.ndarray, hashes: np.ndarray, dev: int, test: int, seed: int, names: list[str]
) -> dict[str, np.ndarray]:
    """Split so that each class keeps its proportion, and all rows with the same text are in the same split.

    `labels` (num_rows,) are class ids, `hashes` (num_rows,) hashes of the texts, `names` the classes for
    messages. A text with conflicting labels counts as the class of its first row. Each split has at least one
    text of each class, apart from classes with fewer texts than splits: train has the first, test the second.
    Apart from that, sizes are met to within a few rows. Raises InputError where many texts are of such
    classes: then something else was taken for the label.
    """
    sizes_wanted = {name: size for name, size in (("test", test), ("dev", dev)) if size}
    first, order, sizes = text_groups(hashes)
    part_of = {"train": 0, "dev": 1, "test": 2}
    parts = np.zeros(len(first), np.int64)
    generator = np.random.default_rng(seed)
    proportions = {name: size / len(labels) for name, size in sizes_wanted.items()}
    owed = dict.fromkeys(sizes_wanted, 0.0)
    # Small classes first: to be in each split, one may give more rows than its proportion; the large ones
    # then give less.
    texts_of_class = np.bincount(labels[first], minlength=len(names))
    is_rare = (texts_of_class > 0) & (texts_of_class <= len(sizes_wanted))
    _check_rare(texts_of_class, is_rare, len(sizes_wanted) + 1, names)
    for label in np.argsort(np.bincount(labels, minlength=len(names)), kind="stable"):
        groups = np.flatnonzero(labels[first] == label)
        if is_rare[label]:
            groups = generator.permutation(groups)
            for name, group in zip(sizes_wanted, groups[1:], strict=False):
                parts[group] = part_of[name]
                owed[name] -= int(sizes[group])
            continue
        for name, dealt in _deal(generator.permutation(groups), sizes, proportions, owed).items():
            parts[dealt] = part_of[name]
    of_row = parts_of_rows(parts, order, sizes)
    return {name: np.flatnonzero(of_row == part) for name, part in part_of.items()}


def text_groups(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of each text as `first`, its first row, `order` and `sizes`: `order` (num_rows,) has
    the `sizes` (num_texts,) rows of the first text, then those of the next."""
    _all, first, group, sizes = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    return first, np.argsort(group, kind="stable"), sizes


def parts_of_rows(parts: np.ndarray, order: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the part of each row, (num_rows,), of those of texts, (num_texts,), as in `text_groups`."""
    of_row = np.empty(len(order), np.int64)
    of_row[order] = np.repeat(parts, sizes)
    return of_row


def part_of_rows(rows: np.ndarray, classes: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return the part `share` of row ids, sorted: of each of the `classes` (num_rows,) alike, at least one
    row of each; it holds all smaller parts."""
    order = np.random.default_rng(seed).permutation(len(rows))
    kept = []
    for one in np.unique(classes):
        of_class = order[classes[order] == one]
        kept.append(of_class[: max(1, round(share * len(of_class)))])
    return np.sort(rows[np.concatenate(kept)])


def _deal(
    groups: np.ndarray, sizes: np.ndarray, proportions: dict[str, float], owed: dict[str, float]
) -> dict[str, np.ndarray]:
    """Deal the texts of one class to the splits: to each its proportion of the rows, and at least one text.

    `groups` are ids of texts in random order, `sizes` the number of rows of every text. `owed`, the rows that
    the classes before this one gave a split too few (negative: too many), is updated.
    """
    num_rows = int(sizes[groups].sum())
    largest = max(1.0, min(proportions.values(), default=1.0) * num_rows)
    # Texts with too many rows for dev or test come last
    weight = np.where(sizes[groups] > largest, sizes[groups], 0)
    groups = groups[np.argsort(weight, kind="stable")]
    dealt, left = {}, groups
    for done, (name, proportion) in enumerate(proportions.items()):
        target = proportion * num_rows + owed[name]
        count = int(np.searchsorted(np.cumsum(sizes[left]), target + 0.5, side="right"))
        count = min(max(1, count), len(left) - (len(proportions) - done)) if len(left) else 0
        dealt[name], left = left[:count], left[count:]
        owed[name] = target - int(sizes[dealt[name]].sum())
    return dealt | {"train": left}


def _check_rare(texts: np.ndarray, is_rare: np.ndarray, needed: int, names: list[str]) -> None:
    """Raise InputError where classes with too few texts have many of all texts; (num_classes,) arrays."""
    are_few = texts[is_rare].sum() <= max(needed - 1, RARE_SHARE * texts.sum())
    if are_few and texts[~is_rare].any():
        return
    rare = np.flatnonzero(is_rare)
    question = "; or is data.label_column the wrong column?" if len(names) > texts.sum() / 2 else ""
    raise InputError(
        f"a stratified split needs {needed} different texts of each class, one for each split; "
        f"{len(rare):,} of {len(names):,} classes have fewer, the first is '{shorten(names[rare[0]])}' with "
        f"{texts[rare[0]]}; add rows, set --data.split random, or give separate files{question}"
    )


def label_list_ids(labels: np.ndarray) -> np.ndarray:
    """Return a number for each row, (num_rows,) int64, the same for equal labels (num_rows, num_labels)."""
    return np.unique(np.packbits(labels, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def split_multi_label(
    labels: np.ndarray, hashes: np.ndarray, dev: int, test: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev, test by `deal_multi_label`; the only text of a label is in train."""
    names = [name for name, size in (("train", 1), ("dev", dev), ("test", test)) if size]
    shares = np.array(
        [{"dev": dev, "test": test}.get(name, len(labels) - dev - test) for name in names]
    ) / len(labels)
    part = deal_multi_label(labels, hashes, shares, seed)
    rows = {name: np.flatnonzero(part == number) for number, name in enumerate(names)}
    return {name: rows.get(name, np.empty(0, np.int64)) for name in ("train", "dev", "test")}


def deal_multi_label(labels: np.ndarray, hashes: np.ndarray, shares: np.ndarray, seed: int) -> np.ndarray:
    """Return the part of each row, (num_rows,) from 0; `shares` (num_parts,) of the rows are for each.

    `labels` (num_rows, num_labels) are 0 and 1, `hashes` (num_rows,) hashes of the texts; a text with
    conflicting labels counts as its first row. Texts are dealt out one by one, in random order within sets,
    those of rare sets and of rare labels first. A text goes to the part that lacks most rows of its set; of a
    set with too few texts for all parts, to the one that lacks most rows of its rarest label (iterative
    stratification, Sechidis et al. 2011).
    """
    first, order, sizes = text_groups(hashes)
    of_text, sets = labels[first].astype(np.int64), label_list_ids(labels[first])
    num_sets = int(sets.max()) + 1
    set_need = np.bincount(sets, sizes, num_sets)[:, None] * shares
    label_need = (of_text * sizes[:, None]).sum(axis=0)[:, None] * shares
    need = len(labels) * shares
    label_rows = of_text.sum(axis=0)
    rarest = np.where(
        of_text.any(axis=1), np.where(of_text, label_rows, np.iinfo(np.int64).max).argmin(axis=1), -1
    )
    is_rare = np.bincount(sets, minlength=num_sets)[sets] <= len(shares)
    shuffled = np.random.default_rng(seed).permutation(len(first))
    rank = np.where(rarest >= 0, label_rows[rarest], len(labels))
    # Rare sets first: what they take too much of a label, the frequent sets give less.
    dealt = shuffled[np.lexsort((sets[shuffled], rank[shuffled], ~is_rare[shuffled]))]
    chosen = np.empty(len(first), dtype=np.int64)
    for text in dealt:
        wants = np.zeros(len(shares)) if is_rare[text] else set_need[sets[text]]
        lacking = label_need[rarest[text]] if rarest[text] >= 0 else need
        part = int(np.lexsort((-need, -np.round(lacking, 9), -np.round(wants, 9)))[0])
        chosen[text] = part
        set_need[sets[text], part] -= sizes[text]
        label_need[of_text[text].astype(bool), part] -= sizes[text]
        need[part] -= sizes[text]
    return parts_of_rows(chosen, order, sizes)


def folds_of_classes(labels: np.ndarray, hashes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, (num_rows,) from 0, of class ids; a text with several rows is dealt as the
    class of its first row. Raises InputError for more folds than texts of the largest class."""
    from sklearn.model_selection import StratifiedKFold

    _texts, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    classes = labels[first]
    if (largest := int(np.bincount(classes).max())) < folds:
        raise InputError(
            "--folds must be at most the number of different texts of the largest class; found "
            f"{folds} folds for {len(first):,} texts and {largest:,} of that class"
        )
    fold = np.empty(len(first), np.int64)
    with warnings.catch_warnings():
        # A class with fewer texts than folds is in some folds only
        warnings.simplefilter("ignore")
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed % (1 << 32))
        for number, (_others, tested) in enumerate(splitter.split(classes, classes)):
            fold[tested] = number
    return fold[group]


def dataset_statistics(
    form: Any, labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], label_names: list[str]
) -> dict:
    """Return for each split with rows `rows`, `LabelForm.statistics`, `repeated`, `conflicting`, `also_in`.

    `labels` and `hashes` hold, for each split, the labels of the form, (num_rows, ...), and the hashes of the
    texts, (num_rows,). `repeated` counts rows with the text of an earlier row of the same split,
    `conflicting` counts texts with more than one label, and `also_in` counts, for each earlier split, the
    rows whose text is in that split too.
    """
    statistics: dict[str, dict] = {}
    known: dict[str, np.ndarray] = {}
    for name, split_labels in labels.items():
        if not len(split_labels):
            continue
        texts, of_row = np.unique(hashes[name], return_inverse=True)
        ids = form.ids(split_labels)
        num_ids = int(ids.max()) + 1
        # One number for each text and label; sorting is faster than np.unique without indices and np.isin
        pairs = np.sort(of_row * num_ids + ids)
        labels_of_text = np.bincount(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))] // num_ids)
        statistics[name] = {
            "rows": len(split_labels),
            **form.statistics(split_labels, label_names),
            "repeated": len(split_labels) - len(texts),
            "conflicting": int((labels_of_text > 1).sum()),
            "also_in": {other: _count_in(hashes[name], known[other]) for other in known},
        }
        known[name] = texts
    return statistics


def _count_in(hashes: np.ndarray, known: np.ndarray) -> int:
    """Return how many of the hashes are among the known ones, which are sorted."""
    at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return int((known[at] == hashes).sum())
