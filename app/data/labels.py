"""The labels of each task: how they are read, what they are called, their arrays."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import compress
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest, shorten
from ..words import _
from .cells import label_text, shown
from .columns import MIN_ROWS, label_like
from .read import ReadOptions

# These are the values of a column for each label, in lower case
ZERO_OR_ONE = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
USUAL_SEPARATORS = (",", "|", ";", "，", "；", "、")
# How programs write a missing value that became text, in lower case
MISSING_VALUES = {"nan", "none", "na", "n/a", "null", "<na>"}
MAX_RANGES, ROWS_OF_RANGE = 10, 20  # ranges of numbers whose proportions a split keeps, least rows of one
LARGEST = 1e100  # the squares of larger numbers do not add up


def is_integer(label: str) -> bool:
    return re.fullmatch("-?[0-9]{1,18}", label) is not None


def resolve_label(label: str, names: list[str], accept_ids: bool = True) -> int | None:
    """Return the id of a label, its index in `names`; None for an unknown label. With `accept_ids`, a label
    that is an integer is the id itself, unless any of `names` is an integer too."""
    for written in (label, f"{label}.0"):
        if written in names:
            return names.index(written)
    is_id = accept_ids and is_integer(label) and 0 <= int(label) < len(names)
    return int(label) if is_id and not any(map(is_integer, names)) else None


def sort_labels(values: list[str]) -> list[str]:
    """Return labels in the order of their ids: by number if all are integers, else by code point."""
    return sorted(values, key=int) if all(map(is_integer, values)) else sorted(values)


def missing_values(names: list[str]) -> list[str]:
    return [name for name in names if name.strip().lower() in MISSING_VALUES]


def look_alikes(names: list[str]) -> list[list[str]]:
    """Return the groups of labels that a person cannot tell apart, or hardly: by hidden characters, width of
    letters and digits, case, white space, quotes, a full stop at the end, or leading zeros."""
    groups: dict[str, list[str]] = {}
    for name in names:
        text = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
        text = re.sub("[\\s\ufe0f\"'“”‘’「」]|[.。]$", "", text.casefold())
        groups.setdefault(str(int(text)) if is_integer(text) else text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


class LabelForm:
    """How the labels of a task are read, what they are called, and their array in a dataset.

    A *label text* is what a table has of a row's label; `labels` are arrays (num_rows, ...) of the labels of
    rows. `what` names the label of a row in messages; `has_several`: a row may have several labels.
    """

    has_labels = True
    has_several = False
    what = "label"

    def are_labels(self, values: Sequence) -> bool:
        """Return whether the values of a column look like labels."""
        return label_like(values)

    def text(self, value: Any, options: ReadOptions) -> str:
        """Return the label text of a cell; raises ValueError for a wrong row, InputError if all are."""
        raise NotImplementedError

    def labels_in(self, text: str) -> list[str]:
        """Return the labels of a label text that other rows may have too."""
        return [text]

    def unknown(self, text: str, names: list[str], accept_ids: bool = True) -> str | None:
        """Return a label of a label text that is not one of `names`, for a message, with the nearest name and
        those that there are; None where all are known."""
        for label in self.labels_in(text):
            if resolve_label(label, names, accept_ids) is None:
                said = _("{label}{near} (known: {names})")
                return said.format(label=excerpt(label), near=nearest(label, names), names=listed(names))
        return None

    def names(self, config: DataConfig, train: Any) -> list[str]:
        """Return the names of the labels by id, of the settings, else of the table of the train file."""
        raise NotImplementedError

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        """Return the labels of label texts, all of them known, (num_texts, ...)."""
        raise NotImplementedError

    def of_rows(self, table: Any, names: list[str]) -> np.ndarray:
        """Return the labels of a table's rows, (num_rows, ...)."""
        return self.of_texts(table.label_values, names)[table.labels]

    def groups(self, labels: np.ndarray) -> np.ndarray:
        """Return the group of each row, (num_rows,) int64, whose proportion a part of the rows keeps."""
        return labels

    def check(self, labels: dict, rows: dict, tables: dict, names: list[str]) -> None:
        """Raise InputError for labels that nothing can be learnt from: labels and row ids by split, and the
        table of each file. Each of two or more labels must have a row in train."""
        for label in np.flatnonzero(counts(labels["train"], len(names)) == 0):
            where = "it has no rows at all"
            for name in ("test", "dev"):
                of_split = labels[name]
                matches = np.flatnonzero(of_split[:, label] if of_split.ndim > 1 else of_split == label)
                if len(matches):
                    first = tables.get(name, tables["train"]).where(int(rows[name][matches[0]]))
                    where = f"the first of its {len(matches):,} {name} rows is {first}"
            said = _(
                "every label needs rows in train; label '{label}' is absent from train ({where}); add rows "
                "of it, or remove it from the data and from data.labels"
            )
            raise InputError(said.format(label=shorten(names[label]), where=where))
        if len(names) < 2:
            said = _("{path}: two or more labels are needed, found {labels}; set --data.label_column")
            raise InputError(said.format(path=tables["train"].source, labels=listed(names)))

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return what the data report has of a split's labels: at least `classes`, the rows of each label."""
        return {"classes": dict(zip(names, counts(labels, len(names)).tolist(), strict=True))}


def counts(labels: np.ndarray, num_labels: int) -> np.ndarray:
    """Return the rows of each label, (num_labels,) int64, of class ids or of rows of 0 and 1."""
    if labels.ndim > 1:
        return labels.sum(axis=0, dtype=np.int64)
    return np.bincount(labels, minlength=num_labels)


class NoLabels(LabelForm):
    """Texts only: all rows are class 0."""

    has_labels = False

    def names(self, config: DataConfig, train: Any) -> list[str]:
        return []

    def of_rows(self, table: Any, names: list[str]) -> np.ndarray:
        return np.zeros(table.num_rows, dtype=np.int64)

    def check(self, labels: dict, rows: dict, tables: dict, names: list[str]) -> None:
        pass

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        return {"classes": {}}


class OneLabel(LabelForm):
    """One label a row: class ids (num_rows,) int64. `several` is the data.task of several of them a row."""

    several = "multi_label"

    def text(self, value: Any, options: ReadOptions) -> str:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        # Not wrong rows: to skip such rows would skip those with several labels
        is_list = isinstance(value, list) and value and all(isinstance(one, (str, int)) for one in value)
        if is_list or isinstance(value, dict):
            remedy = f"write one label, or a list of several labels and set --data.task {self.several}"
            raise InputError(f"a row must have one label, found {excerpt(value)}; {remedy}")
        return label_text(value)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        if config.labels is not None:
            return config.labels
        separator = separator_in(train.label_values)
        if separator is not None:
            code, label = next(one for one in enumerate(train.label_values) if separator in one[1])
            said = _(
                "{where}: a row must have one label, found {label}; for several labels a row set --data.task "
                "{task} --data.label_separator '{separator}'; if it is one label, list all in --data.labels"
            )
            where = train.where(np.flatnonzero(train.labels == code)[0])
            values = {"label": excerpt(label), "task": self.several, "separator": separator}
            raise InputError(said.format(where=where, **values))
        return sort_labels(train.label_values)

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        return np.array([resolve_label(text, names) for text in texts], dtype=np.int64)


def separator_in(labels: list[str]) -> str | None:
    """Return the separator of several labels in one, if half of the parts are labels elsewhere, or None."""
    for separator in USUAL_SEPARATORS:
        joined = [{part.strip() for part in label.split(separator)} for label in labels if separator in label]
        parts = Counter(part for parts in joined for part in parts if part)
        again = sum(count > 1 or part in labels for part, count in parts.items())
        if joined and 2 * again >= len(parts):
            return separator
    return None


class OrderedLabels(OneLabel):
    """Class ids (num_rows,) int64, in the order of the labels from the lowest to the highest."""

    def names(self, config: DataConfig, train: Any) -> list[str]:
        labels = super().names(config, train)
        if config.labels is not None:
            return labels
        numbers = [number_of(label) for label in labels if is_finite(label)]
        if len(set(numbers)) < len(labels):
            raise InputError(
                f"{train.source}: the order of labels that are not different numbers must be known, found "
                f"{listed(map(repr, labels))}; list all from the lowest to the highest in --data.labels"
            )
        return sorted(labels, key=number_of)


class NumberLabels(LabelForm):
    """The labels of rows are numbers, (num_rows,) float64; a label text is a number as Python writes it."""

    what = "number"

    def are_labels(self, values: Sequence) -> bool:
        return len(values) >= MIN_ROWS and all(is_finite(value) for value in values)

    def text(self, value: Any, options: ReadOptions) -> str:
        return repr(number_of(value))

    def labels_in(self, text: str) -> list[str]:
        return []

    def names(self, config: DataConfig, train: Any) -> list[str]:
        return ["score"]

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        return np.array([float(text) for text in texts], dtype=np.float64)

    def groups(self, labels: np.ndarray) -> np.ndarray:
        # Ranges have about equally many rows
        number = min(MAX_RANGES, max(1, len(labels) // ROWS_OF_RANGE))
        edges = np.unique(np.quantile(labels, np.arange(1, number) / number))
        return np.unique(np.searchsorted(edges, labels), return_inverse=True)[1]

    def check(self, labels: dict, rows: dict, tables: dict, names: list[str]) -> None:
        train = labels["train"]
        if len(train) and float(np.ptp(train)) == 0:
            found = f"found {train[0]:g} in all rows; is data.label_column the right column?"
            raise InputError(f"{tables['train'].source}: the numbers of train must differ, {found}")

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        ends = {"least": float(labels.min()), "largest": float(labels.max())}
        return {"classes": {}, "mean": float(labels.mean()), "deviation": float(labels.std())} | ends


def is_finite(value: Any) -> bool:
    try:
        number_of(value)
    except ValueError:
        return False
    return True


def number_of(value: Any) -> float:
    """Return the number in a cell; raises ValueError with the problem."""
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    text = str(value) if is_number else label_text(value)
    try:
        # Python reads 1_000 too
        number = float("_" if "_" in text else text)
    except (ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= LARGEST:
        remedy = "fix the row, or set --data.label_column, or --data.header true if this is a header"
        raise ValueError(f"the label must be a number up to {LARGEST:g}, found {shown(value)}; {remedy}")
    return number


def labels_in_cell(value: Any, separator: str | None) -> list:
    """Return the labels in a value, not cleaned: a list, text with separators, or nothing. Raises ValueError
    with the problem of this row, and InputError where all rows with several labels have it, so that none of
    them is skipped."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if not isinstance(value, str):
        return value if isinstance(value, list) else [value]
    if value.lstrip().startswith("["):
        remedy = "fix the row, or set --data.label_separator for labels without brackets"
        raise ValueError(f'a list of labels must be JSON, like ["a", "b"], found {excerpt(value)}; {remedy}')
    if separator is not None:
        return [label for label in value.split(separator) if label.strip()]
    usual = next((character for character in USUAL_SEPARATORS if character in value), None)
    if usual is not None:
        found = f"found {excerpt(value)}; set --data.label_separator '{usual}', or write a JSON list"
        raise InputError(f"cannot tell whether this is one label or several: {found}")
    return [value]


class LabelLists(LabelForm):
    """The labels of rows are 0 and 1, (num_rows, num_labels) uint8; a label text is a JSON list, in which a
    label is once."""

    has_several = True
    what = "set of labels"

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is None:
            labels = [label_text(label) for label in labels_in_cell(value, options.label_separator)]
        else:
            has_label = [ZERO_OR_ONE.get(str(one).strip().lower()) for one in value]
            if None in has_label:
                at = has_label.index(None)
                rule = f"the column {excerpt(options.label_columns[at])} of data.label_columns must be 0 or 1"
                raise ValueError(f"{rule}, found {shown(value[at])}; fix the row")
            labels = list(compress(options.label_columns, has_label))
        return json.dumps(sorted(set(self.cleaned(labels, options))), ensure_ascii=False)

    def cleaned(self, labels: list[str], options: ReadOptions) -> list[str]:
        """Return the labels of one row as they are written; raises ValueError."""
        return labels

    def labels_in(self, text: str) -> list[str]:
        return json.loads(text)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        in_train = {label for text in train.label_values for label in json.loads(text)}
        return config.labels or config.label_columns or sort_labels(list(in_train))

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        matrix = np.zeros((len(texts), len(names)), dtype=np.uint8)
        ids: dict[str, int | None] = {}
        for row, text in enumerate(texts):
            for label in json.loads(text):
                if label not in ids:
                    ids[label] = resolve_label(label, names)
                matrix[row, ids[label]] = 1
        return matrix

    def groups(self, labels: np.ndarray) -> np.ndarray:
        # Most lists of labels are in few rows
        return np.zeros(len(labels), np.int64)

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return also `unlabelled`, the rows without a label, and `labels_per_row`, their mean number."""
        per_row = labels.sum(axis=1, dtype=np.int64)
        more = {"unlabelled": int((per_row == 0).sum()), "labels_per_row": float(per_row.mean())}
        return super().statistics(labels, names) | more


def separator_of(options: ReadOptions | DataConfig) -> str:
    """Return what is between two levels; raises InputError where that is not known."""
    separator = options.label_hierarchy
    if separator is None or separator == options.label_separator:
        raise InputError(
            f"data.label_hierarchy must be what is between the levels of a label, for instance - or /, and "
            f"not data.label_separator, found {separator}; set --data.label_hierarchy"
        )
    return separator


def levels_of(label: str, separator: str) -> list[str]:
    """Return the levels of a label, the highest first, stripped; raises ValueError where one is empty."""
    levels = [level.strip() for level in label.split(separator)]
    if not all(levels):
        problem = f"level {levels.index('') + 1} of the label is empty, found {excerpt(label)}"
        raise ValueError(f"{problem}; write '{separator}' between two levels only, or fix the row")
    return levels


def without_ancestors(labels: Iterable[str], separator: str) -> list[str]:
    """Return the labels of a row without those above another one: files may name each level of a path."""
    labels = list(labels)
    return [label for label in labels if not any(one.startswith(label + separator) for one in labels)]


class Paths(LabelForm):
    """What one path a row and several have in common; comes first among the base classes."""

    def names(self, config: DataConfig, train: Any) -> list[str]:
        names, separator = super().names(config, train), separator_of(config)
        where = "data.labels" if config.labels else train.source
        try:
            depths = [len(levels_of(name, separator)) for name in names]
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error
        if names and max(depths) < 2:
            rule = f"labels must have two or more levels, with '{separator}' between them"
            raise InputError(f"{where}: {rule}, found {listed(map(repr, names))}; set --data.label_hierarchy")
        return names


class OnePath(Paths, OneLabel):
    """One path a row: class ids (num_rows,) int64. A path that ends above another one is its own label."""

    what = "path of labels"
    several = "multi_path"

    def text(self, value: Any, options: ReadOptions) -> str:
        separator = separator_of(options)
        if options.label_columns is None:
            return separator.join(levels_of(super().text(value, options), separator))
        # A column for each level; those after the end of a path are empty
        levels = ["" if one is None or not str(one).strip() else label_text(one) for one in value]
        while levels and not levels[-1]:
            levels.pop()
        if not levels or "" in levels or any(separator in level for level in levels):
            rule = f"the levels must be filled from the first on, without '{separator}' in them"
            remedy = "fix the row, or choose another --data.label_hierarchy"
            raise ValueError(f"{rule}, found {excerpt(levels)}; {remedy}")
        return separator.join(levels)


class PathLists(Paths, LabelLists):
    """Several paths a row, or none: 0 and 1, (num_rows, num_labels) uint8."""

    what = "set of paths"

    def cleaned(self, labels: list[str], options: ReadOptions) -> list[str]:
        separator = separator_of(options)
        paths = [separator.join(levels_of(label, separator)) for label in labels]
        return without_ancestors(paths, separator)


# The keys are values of data.task
LABEL_FORMS = {
    "single_label": OneLabel(),
    "multi_label": LabelLists(),
    "ordinal": OrderedLabels(),
    "regression": NumberLabels(),
    "single_path": OnePath(),
    "multi_path": PathLists(),
    "masked_language_modelling": NoLabels(),
}


def label_form(task: str | None) -> LabelForm:
    """Return the form of a task's labels: one label a row for an unknown task, of another program."""
    return LABEL_FORMS.get(task, LABEL_FORMS["single_label"])
