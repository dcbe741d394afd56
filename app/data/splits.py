"""The train file's rows -> train, dev and test, or folds; and a part of its rows, for a learning curve."""

from __future__ import annotations

import random
from array import array

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, shorten
from .dealing import UniqueTexts, deal_label_lists, deal_texts, unique_texts
from .label_cells import number_of
from .labels import LabelForm

SPLITS = ("train", "dev", "test")
RARE_SHARE = 0.1  # share of all texts that may be of classes with fewer texts than splits
MANY_CLASSES = 20  # more classes that are all numbers are probably a number to be predicted


def split_rows(
    form: LabelForm,
    labels: np.ndarray,
    texts: np.ndarray,
    config: DataConfig,
    *,
    dev_size: float,
    test_size: float,
    label_names: list[str],
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev and test of one file, (num_rows,) int64 each, as `data.split` says.

    `labels` (num_rows, ...) have the `form`, and `label_names` are for messages; `texts` (num_rows,) are the
    numbers of the texts. Sizes below 1 are fractions. Raises InputError where no rows are left to train on,
    and for many classes with fewer texts than splits: the label column is probably another one.
    """
    num_rows = len(labels)
    num_dev = _rows_of_size(dev_size, num_rows)
    num_test = _rows_of_size(test_size, num_rows)
    num_train = num_rows - num_dev - num_test
    if num_train <= 0:
        raise InputError(
            f"the train file must keep rows to train on: it has {num_rows:,}, and dev_size {dev_size:g} and "
            f"test_size {test_size:g} take {num_dev + num_test:,}; make them smaller"
        )
    if num_train == num_rows:
        return {"train": np.arange(num_rows), "dev": np.arange(0), "test": np.arange(0)}
    if config.split == "random":
        return _random_split(num_rows, num_train, num_dev, config.split_seed)

    # Texts are dealt only to splits that have rows
    proportions = {}
    for number, count in enumerate((num_train, num_dev, num_test)):
        if count:
            proportions[number] = count / num_rows
    unique = unique_texts(texts)
    if form.has_several:
        numbers = np.array(list(proportions))
        parts = deal_label_lists(labels, unique, np.array(list(proportions.values())), config.split_seed)
        split_of_row = numbers[parts]
    else:
        # Texts that are not dealt are train. Test is dealt first: the second text of a class goes to it.
        dealt_proportions = {}
        for number in (2, 1):
            if number in proportions:
                dealt_proportions[number] = proportions[number]
        groups = form.groups(labels)
        num_splits = 1 + len(dealt_proportions)
        _refuse_rare_groups(groups, unique, num_splits, label_names)
        split_of_row = deal_texts(groups, unique, dealt_proportions, config.split_seed)
    return {name: np.flatnonzero(split_of_row == number) for number, name in enumerate(SPLITS)}


def _rows_of_size(size: float, num_rows: int) -> int:
    """Return the number of rows of dev_size or test_size; a fraction above 0 is at least one row."""
    if size == 0 or size >= 1:
        return int(size)
    return max(1, round(num_rows * size))


def _random_split(num_rows: int, num_train: int, num_dev: int, seed: int) -> dict[str, np.ndarray]:
    # An array takes less memory than a list, and Python shuffles it in the same way
    rows = array("q", range(num_rows))
    random.Random(seed).shuffle(rows)
    parts = np.split(np.array(rows, np.int64), [num_train, num_train + num_dev])
    return dict(zip(SPLITS, parts, strict=True))


def _refuse_rare_groups(
    groups: np.ndarray, unique: UniqueTexts, num_splits: int, label_names: list[str]
) -> None:
    """Raise InputError where many texts are of groups that have fewer texts than there are splits."""
    num_dealt_splits = num_splits - 1
    texts_of_group = np.bincount(groups[unique.first_rows])
    num_texts = texts_of_group.sum()
    rare_groups = np.flatnonzero((texts_of_group > 0) & (texts_of_group <= num_dealt_splits))
    num_rare_texts = texts_of_group[rare_groups].sum()
    are_few = num_rare_texts <= max(num_dealt_splits, RARE_SHARE * num_texts)
    if are_few and num_rare_texts < num_texts:
        return
    first_group = rare_groups[0]
    # Texts without labels, and ranges of numbers, have no names
    name = f"group {first_group + 1}"
    if len(label_names) > 1:
        name = label_names[first_group]
    remedy = "add rows, set --data.split random, give separate files, or set --data.label_column"
    if len(label_names) > MANY_CLASSES and all(number_of(name) is not None for name in label_names):
        remedy = f"to predict a number, set --data.task regression; else {remedy}"
    raise InputError(
        f"a stratified split needs {num_splits} different texts of each class, one a split; "
        f"{len(rare_groups):,} of {len(texts_of_group):,} classes have fewer, the first is "
        f"'{shorten(name)}' with {texts_of_group[first_group]}; {remedy}"
    )


def fold_of_rows(
    form: LabelForm, labels: np.ndarray, texts: np.ndarray, num_folds: int, seed: int
) -> np.ndarray:
    """Return the fold of each row, (num_rows,) from 0. Labels of the `form` keep their proportions; all rows
    of a text are in one fold. Raises InputError for too many folds."""
    groups = form.groups(labels)
    unique = unique_texts(texts)
    largest = np.bincount(groups[unique.first_rows]).max()
    if largest < num_folds:
        raise InputError(
            "--folds must be at most the number of different texts of the largest class; found "
            f"{num_folds} folds for {len(unique):,} texts and {largest:,} of that class"
        )
    if form.has_several:
        return deal_label_lists(labels, unique, np.full(num_folds, 1 / num_folds), seed)
    proportions = dict.fromkeys(range(1, num_folds), 1 / num_folds)
    return deal_texts(groups, unique, proportions, seed)


def part_of_rows(rows: np.ndarray, groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a `share` of the row ids `rows` (num_rows,), sorted: the same share of each of the `groups`
    (num_rows,), at least one row. A larger share has all rows of a smaller one."""
    order = np.random.default_rng(seed).permutation(len(rows))
    parts = []
    for group in np.unique(groups):
        places = order[groups[order] == group]
        num_taken = max(1, round(share * len(places)))
        parts.append(places[:num_taken])
    return np.sort(rows[np.concatenate(parts)])
