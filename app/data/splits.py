"""Rows of one table -> the row ids of train, dev and test, or of folds; and what the splits have."""

import random
import warnings
from array import array
from typing import Any

import numpy as np

from ..errors import InputError, shorten
from ..words import _

SPLITS = ("train", "dev", "test")
RARE_SHARE = 0.1  # share of all texts that may be of classes with fewer texts than splits


def split_sizes(num_rows: int, dev_size: float, test_size: float) -> tuple[int, int]:
    """Return the numbers of dev and test rows; a size below 1 is a fraction of `num_rows`, at least one row.
    Raises InputError if no rows would be left to train on."""
    sizes = (dev_size, test_size)
    dev, test = (int(n) if n >= 1 or n == 0 else max(1, round(num_rows * n)) for n in sizes)
    if dev + test >= num_rows:
        said = _(
            "the train file must keep rows to train on: it has {rows:,}, and dev_size {dev:g} and "
            "test_size {test:g} take {taken:,}; make them smaller"
        )
        raise InputError(said.format(rows=num_rows, dev=dev_size, test=test_size, taken=dev + test))
    return dev, test


def split_rows(
    form: Any, labels: np.ndarray, hashes: np.ndarray, config: Any, sizes: list[float], names: list[str]
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev and test of one file, (num_rows,) int64 each, as `data.split` says.

    `labels` (num_rows, ...) are of the `form`, with `names` for messages, `hashes` (num_rows,) of the texts,
    and `sizes` are dev_size and test_size. A stratified split keeps proportions of labels, and all rows of a
    text are in one split. Raises InputError as `split_sizes` and `deal_groups`.
    """
    num_rows = len(labels)
    dev, test = split_sizes(num_rows, *sizes)
    counts = np.array([num_rows - dev - test, dev, test])
    if config.split == "random" and dev + test:
        rows = array("q", range(num_rows))
        random.Random(config.split_seed).shuffle(rows)
        return dict(zip(SPLITS, np.split(np.array(rows, np.int64), np.cumsum(counts)[:2]), strict=True))
    if not dev + test:
        part = np.zeros(num_rows, np.int8)
    elif form.has_several:
        # Texts are dealt only to splits that have rows
        numbers = np.flatnonzero(counts)
        part = numbers[deal_label_lists(labels, hashes, counts[numbers] / num_rows, config.split_seed)]
    else:
        part = deal_groups(form.groups(labels), hashes, dev, test, config.split_seed, names)
    return {name: np.flatnonzero(part == number) for number, name in enumerate(SPLITS)}


def text_groups(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of each text as `first`, its first row, `order` and `sizes`: `order` (num_rows,) has
    the `sizes` (num_texts,) rows of the first text, then those of the next. Texts are ordered by hash."""
    dtype = np.uint32 if len(hashes) < 1 << 32 else np.int64
    order = np.argsort(hashes, kind="stable").astype(dtype)
    ordered = hashes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]).astype(dtype)
    return order[starts], order, np.diff(starts, append=dtype(len(hashes)))


def spread_to_rows(parts: np.ndarray, order: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the part of each row, (num_rows,), from that of each text, `parts` (num_texts,)."""
    of_row = np.empty(len(order), parts.dtype)
    of_row[order] = np.repeat(parts, sizes)
    return of_row


def deal_groups(
    labels: np.ndarray, hashes: np.ndarray, dev: int, test: int, seed: int, names: list[str]
) -> np.ndarray:
    """Return the split of each row, (num_rows,): 0 is train, 1 dev, 2 test. Each class keeps its proportion,
    and each split has a text of it. Where a class has fewer texts than splits, train has the first one, test
    the second. Raises InputError for many such classes: another column was probably taken for the label."""
    shares = {part: size / len(labels) for part, size in ((2, test), (1, dev)) if size}
    first, order, sizes = text_groups(hashes)
    classes = labels[first]
    texts = np.bincount(classes, minlength=len(names))
    is_rare = (texts > 0) & (texts <= len(shares))
    are_few = texts[is_rare].sum() <= max(len(shares), RARE_SHARE * texts.sum())
    if not (are_few and texts[~is_rare].any()):
        rare = np.flatnonzero(is_rare)
        # Texts without labels, and ranges of numbers, have no names
        name = names[rare[0]] if len(names) == len(texts) else f"group {rare[0] + 1}"
        raise InputError(
            f"a stratified split needs {len(shares) + 1} different texts of each class, one for each split; "
            f"{len(rare):,} of {len(texts):,} classes have fewer, the first is '{shorten(name)}' with "
            f"{texts[rare[0]]}; add rows, set --data.split random, give separate files, or set "
            "--data.label_column if this is no class"
        )
    of_class = np.split(np.argsort(classes, kind="stable"), np.cumsum(texts)[:-1])
    parts, generator = np.zeros(len(first), np.int8), np.random.default_rng(seed)
    # `owed` is how many rows too few a split has from the classes so far (negative: too many). Small classes
    # come first: to be in each split, a class may give it more rows than its proportion, and large classes
    # then give it less.
    owed = dict.fromkeys(shares, 0.0)
    for label in np.argsort(np.bincount(labels, minlength=len(names)), kind="stable"):
        left = generator.permutation(of_class[label])
        rows = int(sizes[left].sum())
        # Texts with too many rows for dev or test come last
        weight = np.where(sizes[left] > max(1.0, min(shares.values()) * rows), sizes[left], 0)
        left = left[np.argsort(weight, kind="stable")]
        for others, (part, share) in zip(range(len(shares), 0, -1), shares.items(), strict=True):
            target = share * rows + owed[part]
            count = int(np.searchsorted(np.cumsum(sizes[left]), target + 0.5, side="right"))
            # A text is left for each split that follows, and one for train in any case
            count = min(max(1, count), max(min(1, len(left) - 1), len(left) - others))
            dealt, left = np.split(left, [max(0, count)])
            parts[dealt] = part
            owed[part] = target - int(sizes[dealt].sum())
    return spread_to_rows(parts, order, sizes)


def deal_label_lists(labels: np.ndarray, hashes: np.ndarray, shares: np.ndarray, seed: int) -> np.ndarray:
    """Return the part of each row, (num_rows,) from 0. `labels` (num_rows, num_labels) are 0 and 1; `shares`
    (num_parts,) says which share of the rows each part gets.

    Texts are dealt out one by one, those of rare label sets and rare labels first. A text goes to the part
    that lacks most rows of its set; a text of a set with too few texts for all parts goes to the part that
    lacks most rows of its rarest label (iterative stratification, Sechidis et al. 2011).
    """
    first, order, sizes = text_groups(hashes)
    of_text = labels[first].astype(np.int64)
    sets = np.unique(np.packbits(labels[first], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    num_sets = int(sets.max()) + 1
    set_need = np.bincount(sets, sizes, num_sets)[:, None] * shares
    label_need = (of_text * sizes[:, None]).sum(axis=0)[:, None] * shares
    need = len(labels) * shares
    label_rows = of_text.sum(axis=0)
    rarest = np.where(of_text, label_rows, np.iinfo(np.int64).max).argmin(axis=1)
    rarest[~of_text.any(axis=1)] = -1
    is_rare = np.bincount(sets, minlength=num_sets)[sets] <= len(shares)
    shuffled = np.random.default_rng(seed).permutation(len(first))
    rank = np.where(rarest >= 0, label_rows[rarest], len(labels))
    # Rare sets come first: a part that gets too many rows of a label from them gets fewer from the others
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
    return spread_to_rows(chosen, order, sizes)


def fold_of_rows(form: Any, labels: np.ndarray, hashes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, (num_rows,) from 0. Labels of the `form` keep their proportions; all rows
    of a text are in one fold, and its first row stands for it. Raises InputError for too many folds."""
    from sklearn.model_selection import StratifiedKFold

    first, order, sizes = text_groups(hashes)
    classes = form.groups(labels)[first]
    if (largest := int(np.bincount(classes).max())) < folds:
        raise InputError(
            "--folds must be at most the number of different texts of the largest class; found "
            f"{folds} folds for {len(first):,} texts and {largest:,} of that class"
        )
    if form.has_several:
        return deal_label_lists(labels, hashes, np.full(folds, 1 / folds), seed)
    fold = np.empty(len(first), np.int64)
    with warnings.catch_warnings():
        # A class with fewer texts than folds is in some folds only
        warnings.simplefilter("ignore")
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed % (1 << 32))
        for number, (_others, tested) in enumerate(splitter.split(classes, classes)):
            fold[tested] = number
    return spread_to_rows(fold, order, sizes)


def part_of_rows(rows: np.ndarray, groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a `share` of the row ids `rows` (num_rows,), sorted: the same share of each of the `groups`
    (num_rows,), at least one row. A larger share has all rows of a smaller one."""
    order = np.random.default_rng(seed).permutation(len(rows))
    kept = []
    for one in np.unique(groups):
        of_group = order[groups[order] == one]
        kept.append(of_group[: max(1, round(share * len(of_group)))])
    return np.sort(rows[np.concatenate(kept)])


def dataset_statistics(
    form: Any, labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], label_names: list[str]
) -> dict:
    """Return for each split with rows `rows`, `LabelForm.statistics`, `repeated` (rows with the text of an
    earlier row of the split), `conflicting` (texts with more than one label) and `also_in` (for each earlier
    split, the rows whose text is in it too)."""
    statistics, known = {}, {}
    for name, of_split in labels.items():
        if not len(of_split):
            continue
        first, order, sizes = text_groups(hashes[name])
        texts = hashes[name][first]
        # These are rows of texts that are there several times, and for each row the first one with its text
        rows = order[np.repeat(sizes > 1, sizes)]
        first_rows = np.repeat(first[sizes > 1], sizes[sizes > 1])
        is_other = (of_split[rows] != of_split[first_rows]).any(axis=tuple(range(1, of_split.ndim)))
        statistics[name] = {
            "rows": len(of_split),
            **form.statistics(of_split, label_names),
            "repeated": len(of_split) - len(texts),
            "conflicting": len(np.unique(first_rows[is_other])),
            "also_in": {},
        }
        for other, others in known.items():
            at = np.minimum(np.searchsorted(others, texts), len(others) - 1)
            statistics[name]["also_in"][other] = int(sizes[others[at] == texts].sum())
        known[name] = texts
    return statistics
