"""The labels of tasks with one answer a row: how they are read, what they are called, their arrays. Several
labels a row, and labels that are paths, are in label_sets.py."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest, shorten
from ..words import _
from .cells import label_text, shown, string_of
from .columns import MIN_ROWS, label_like
from .read import ReadOptions
from .splits import folds_of_classes, stratified_split

USUAL_SEPARATORS = (",", "|", ";", "，", "；", "、")
# How programs write a missing value that became text, in lower case
MISSING_VALUES = {"nan", "none", "na", "n/a", "null", "<na>"}
# Characters of a label whose code points a message has
MAX_CODE_POINTS = 8


def is_integer(label: str) -> bool:
    """Return whether a label is an integer in ASCII digits."""
    return re.fullmatch("-?[0-9]{1,18}", label) is not None


def resolve_label(label: str, names: list[str], accept_ids: bool = True) -> int | None:
    """Return the id of a label, its index in `names`; None for an unknown label. With `accept_ids`, a label
    that is an integer is the id itself, unless any of `names` is an integer too."""
    if label in names:
        return names.index(label)
    is_id = accept_ids and is_integer(label) and 0 <= int(label) < len(names)
    return int(label) if is_id and not any(map(is_integer, names)) else None


def sort_labels(values: list[str]) -> list[str]:
    """Return labels in the order of their ids: by number if all are integers, else by code point."""
    return sorted(values, key=int) if all(map(is_integer, values)) else sorted(values)


def missing_values(names: list[str]) -> list[str]:
    """Return the labels that are probably missing values which another program wrote as text."""
    return [name for name in names if name.strip().lower() in MISSING_VALUES]


def look_alikes(names: list[str]) -> list[list[str]]:
    """Return the groups of labels that a person cannot tell apart, or hardly: by hidden characters, width of
    letters and digits, white space, leading zeros, or how an accent is written."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_appearance(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _appearance(label: str) -> str:
    text = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    text = " ".join(text.replace("\ufe0f", "").split())
    return str(int(text)) if is_integer(text) else text


def with_code_points(label: str) -> str:
    """Return a label for a message, with the code points of its first characters."""
    points = " ".join(f"U+{ord(character):04X}" for character in label[:MAX_CODE_POINTS])
    return f"{excerpt(label)} ({points}{' ...' if len(label) > MAX_CODE_POINTS else ''})"


def check_labels_in_train(
    form: Any,
    labels: dict[str, np.ndarray],
    rows: dict[str, np.ndarray],
    tables: dict[str, Any],
    label_names: list[str],
) -> None:
    """Raise InputError unless each of two or more labels has a row in train. `labels` of the `form` and row
    ids, `rows`, are by split; `tables` have the table of each file."""
    for label in np.flatnonzero(form.counts(labels["train"], len(label_names)) == 0):
        raise InputError(
            _(
                "every label needs rows in train; label '{label}' is absent from train ({where}); add "
                "training rows of it, or remove it from the data and from data.labels"
            ).format(
                label=shorten(label_names[label]), where=_first_row_of(form, label, labels, rows, tables)
            )
        )
    if len(label_names) < 2:
        raise InputError(
            _(
                "{path}: at least two different labels are needed, found {labels}; is data.label_column the "
                "right column?"
            ).format(path=tables["train"].source, labels=listed(label_names))
        )


def _first_row_of(
    form: Any, label: int, labels: dict[str, np.ndarray], rows: dict[str, np.ndarray], tables: dict[str, Any]
) -> str:
    """Return where the first dev or test row of a label is, for a message."""
    for name in ("dev", "test"):
        matches = form.rows_with(labels[name], label)
        if len(matches):
            first_row = int(rows[name][matches[0]])
            where = tables.get(name, tables["train"]).where(first_row)
            return f"the first of its {len(matches):,} {name} rows is {where}"
    return "it has no rows at all"


class LabelForm:
    """How the labels of a task are read, what they are called, and their array in a dataset.

    A *label text* is what a table has of a row's label; `labels` are arrays (num_rows, ...) of the labels of
    rows. `what` names the label of a row in messages; `has_several`: a row may have several labels.
    """

    has_labels = True
    has_several = False
    what = "label"

    def text(self, value: Any, options: ReadOptions) -> str:
        """Return the label text of a cell; raises ValueError for a wrong row, InputError if all are."""
        raise NotImplementedError

    def text_of_fix(self, value: Any, options: ReadOptions) -> str:
        """Return the label text of a cell of a fix, empty for none; raises ValueError with the problem."""
        return string_of(value, "label").strip()

    def are_labels(self, values: Sequence) -> bool:
        """Return whether the values of a column look like labels."""
        return label_like(values)

    def labels_in(self, text: str) -> list[str]:
        """Return the labels of a label text that other rows may have too."""
        return [text]

    def unknown(self, text: str, names: list[str], accept_ids: bool = True) -> str | None:
        """Return a label of a label text that is not one of `names`, None where all are known."""
        labels = self.labels_in(text)
        return next((label for label in labels if resolve_label(label, names, accept_ids) is None), None)

    def describe_unknown(self, label: str, names: list[str], options: ReadOptions) -> str:
        """Return an unknown label for a message, with the nearest name and those that there are."""
        said = _("{label}{near} (known: {names})")
        return said.format(label=excerpt(label), near=nearest(label, names), names=listed(names))

    def names(self, config: DataConfig, train: Any) -> list[str]:
        """Return the names of the labels by id, of the settings, else of the table of the train file."""
        raise NotImplementedError

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        """Return the labels of label texts, all of them known, (num_texts, ...)."""
        raise NotImplementedError

    def of_rows(self, table: Any, names: list[str]) -> np.ndarray:
        """Return the labels of a table's rows, (num_rows, ...)."""
        return self.of_texts(table.label_values, names)[table.labels]

    def split(
        self, labels: np.ndarray, hashes: np.ndarray, dev: int, test: int, seed: int, names: list[str]
    ) -> dict[str, np.ndarray]:
        """Return the row ids of train, dev and test, which have alike labels; `hashes` (num_rows,) of the
        texts, rows of one text stay together."""
        return stratified_split(self.classes(labels), hashes, dev, test, seed, names)

    def folds(self, labels: np.ndarray, hashes: np.ndarray, folds: int, seed: int) -> np.ndarray:
        """Return the fold of each row, (num_rows,) from 0: labels keep their proportions, rows of one text
        are in one fold. Raises InputError for too many folds."""
        return folds_of_classes(self.classes(labels), hashes, folds, seed)

    def classes(self, labels: np.ndarray) -> np.ndarray:
        """Return the class of each row, (num_rows,) int64, whose proportion a part of the rows keeps."""
        return labels

    def ids(self, labels: np.ndarray) -> np.ndarray:
        """Return a number for each row, (num_rows,), the same for rows with the same labels."""
        return labels

    def counts(self, labels: np.ndarray, num_labels: int) -> np.ndarray:
        """Return the rows of each label, (num_labels,) int64."""
        raise NotImplementedError

    def rows_with(self, labels: np.ndarray, label: int) -> np.ndarray:
        """Return the positions of the rows that have a label."""
        raise NotImplementedError

    def check(self, labels: dict, rows: dict, tables: dict, names: list[str]) -> None:
        """Raise InputError for labels that nothing can be learnt from; labels and row ids by split, and the
        table of each file."""
        check_labels_in_train(self, labels, rows, tables, names)

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return what the data report has of a split's labels: at least `classes`, the rows of each label."""
        return {"classes": dict(zip(names, self.counts(labels, len(names)).tolist(), strict=True))}


class NoLabels(LabelForm):
    """Texts only: all rows are class 0."""

    has_labels = False

    def names(self, config: DataConfig, train: Any) -> list[str]:
        return []

    def of_rows(self, table: Any, names: list[str]) -> np.ndarray:
        return np.zeros(table.num_rows, dtype=np.int64)

    def split(self, labels, hashes, dev, test, seed, names) -> dict[str, np.ndarray]:
        return super().split(labels, hashes, dev, test, seed, ["text"])

    def check(self, labels: dict, rows: dict, tables: dict, names: list[str]) -> None:
        pass

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        return {"classes": {}}


class OneLabel(LabelForm):
    """One label a row: class ids (num_rows,) int64. `several` is the data.task of several of them a row."""

    several = "multi_label"

    def text(self, value: Any, options: ReadOptions) -> str:
        if isinstance(value, list) and all(isinstance(label, (str, int)) for label in value):
            # Not a wrong row: to skip such rows would skip those with several labels
            raise InputError(
                f"a row must have one label, found the list {excerpt(value)}; for several labels a row set "
                f"--data.task {self.several}; or set --data.label_column"
            )
        return label_text(value)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        if config.labels is None:
            _refuse_several(train, self.several)
        return config.labels or sort_labels(train.label_values)

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        return np.array([resolve_label(text, names) for text in texts], dtype=np.int64)

    def counts(self, labels: np.ndarray, num_labels: int) -> np.ndarray:
        return np.bincount(labels, minlength=num_labels)

    def rows_with(self, labels: np.ndarray, label: int) -> np.ndarray:
        return np.flatnonzero(labels == label)


def separator_in(labels: list[str]) -> str | None:
    """Return the separator of several labels in one, if half of the parts are labels elsewhere, or None."""
    for separator in USUAL_SEPARATORS:
        joined = [{part.strip() for part in label.split(separator)} for label in labels if separator in label]
        parts = Counter(part for parts in joined for part in parts if part)
        again = sum(count > 1 or part in labels for part, count in parts.items())
        if joined and 2 * again >= len(parts):
            return separator
    return None


def _refuse_several(train: Any, task: str) -> None:
    """Raise InputError where labels are several in one, with a separator between them."""
    separator = separator_in(train.label_values)
    if separator is None:
        return
    codes = [code for code, label in enumerate(train.label_values) if separator in label]
    rows = np.flatnonzero(np.isin(train.labels, codes))
    first = train.label_values[train.labels[rows[0]]]
    raise InputError(
        _(
            "{where}: a row must have one label, found {label}, and '{separator}' in {rows:,} of {all:,} "
            "labels; for several labels a row set --data.task {task} --data.label_separator '{separator}'; "
            "if each of these is one label, list all labels in --data.labels"
        ).format(
            where=train.where(rows[0]),
            label=excerpt(first),
            separator=separator,
            rows=len(rows),
            all=train.num_rows,
            task=task,
        )
    )


# Ranges with about equally many rows, whose proportions a split keeps, and the least rows of one
MAX_RANGES, ROWS_OF_RANGE = 10, 20
NAME = "score"
# The squares of larger numbers do not add up
LARGEST = 1e100


class NumberLabels(LabelForm):
    """The labels of rows are numbers, (num_rows,) float64; a label text is a number as Python writes it."""

    what = "number"

    def text(self, value: Any, options: ReadOptions) -> str:
        return repr(number_of(value))

    def text_of_fix(self, value: Any, options: ReadOptions) -> str:
        return "" if value is None or not str(value).strip() else self.text(value, options)

    def are_labels(self, values: Sequence) -> bool:
        return len(values) >= MIN_ROWS and all(is_finite(value) for value in values)

    def labels_in(self, text: str) -> list[str]:
        return []

    def names(self, config: DataConfig, train: Any) -> list[str]:
        return [NAME]

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        return np.array([float(text) for text in texts], dtype=np.float64)

    def split(self, labels, hashes, dev, test, seed, names) -> dict[str, np.ndarray]:
        names = [f"range {number}" for number in range(int(self.classes(labels).max()) + 1)]
        return super().split(labels, hashes, dev, test, seed, names)

    def classes(self, labels: np.ndarray) -> np.ndarray:
        """Return the range of each number; ranges have about equally many rows."""
        number = min(MAX_RANGES, max(1, len(labels) // ROWS_OF_RANGE))
        edges = np.unique(np.quantile(labels, np.arange(1, number) / number))
        return np.unique(np.searchsorted(edges, labels), return_inverse=True)[1]

    def ids(self, labels: np.ndarray) -> np.ndarray:
        return np.unique(labels, return_inverse=True)[1]

    def check(self, labels: dict, rows: dict, tables: dict, names: list[str]) -> None:
        """Raise InputError where all numbers of train are the same."""
        train = labels["train"]
        if len(train) and float(np.ptp(train)) == 0:
            first = tables["train"].where(int(rows["train"][0]))
            raise InputError(
                f"{first}: the numbers of train must differ, found {train[0]:g} in all of its {len(train):,} "
                "rows; is data.label_column the right column?"
            )

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        ends = {"least": float(labels.min()), "largest": float(labels.max())}
        return {"classes": {}, "mean": float(labels.mean()), "deviation": float(labels.std())} | ends


def is_finite(value: Any) -> bool:
    """Return whether a cell is a finite number, or text that is one."""
    try:
        number_of(value)
    except ValueError:
        return False
    return True


def number_of(value: Any) -> float:
    """Return the number in a cell; raises ValueError with the problem."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = repr(value) if is_number else label_text(value)
    try:
        # Python reads 1_000 too
        number = float("_" if "_" in text else text)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"the label must be a number, found {shown(value)}; fix the row, or set --data.label_column, or "
            "--data.header true where this line has the names of the columns"
        ) from error
    if not math.isfinite(number):
        raise ValueError(f"the label must be a finite number, found {shown(value)}; fix or remove the row")
    if abs(number) > LARGEST:
        raise ValueError(
            f"the label must be from -{LARGEST:g} to {LARGEST:g}, found {shown(value)}; fix or remove the row"
        )
    return number


class OrderedLabels(OneLabel):
    """Class ids (num_rows,) int64, in the order of the labels from the lowest to the highest."""

    def names(self, config: DataConfig, train: Any) -> list[str]:
        """Return the labels as in data.labels, else by number; raises InputError for other labels."""
        labels = super().names(config, train)
        if config.labels is not None:
            return labels
        if not all(map(is_finite, labels)):
            words = [label for label in labels if not is_finite(label)]
            raise InputError(
                f"{train.source}: the order of the labels must be known with data.task ordinal, found "
                f"{listed(map(repr, words))}; list all labels from the lowest to the highest in --data.labels"
            )
        labels = sorted(labels, key=number_of)
        for one, other in pairwise(labels):
            if number_of(one) == number_of(other):
                raise InputError(
                    f"{train.source}: labels with an order must be different numbers, found {one!r} and "
                    f"{other!r}; write them alike, or list all labels in --data.labels"
                )
        return labels
