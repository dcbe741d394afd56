"""The labels of each task: how they are read, what they are called, their arrays."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest, shorten
from ..words import _
from .columns import MIN_ROWS, label_like, label_text
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


@lru_cache(16)
def label_ids(names: tuple[str, ...], accept_ids: bool = True) -> dict[str, int]:
    """Return the id of each label as files write it: by name, of which label_text takes the .0 off; with
    `accept_ids` also the id itself, unless a name is an integer."""
    ids = {name.removesuffix(".0"): at for at, name in enumerate(names)}
    if accept_ids and not any(map(is_integer, names)):
        ids = {str(at): at for at in range(len(names))} | ids
    return ids | {name: at for at, name in enumerate(names)}


def sort_labels(values: list[str]) -> list[str]:
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
    """How the labels of a task are read, what they are called, and their array in a dataset: one label a row,
    as class ids (num_rows,) int64. The other forms override what differs.

    A *label text* is what a table has of a row's label; `labels_in` has the labels of it that other rows may
    have too. `what` names the label of a row in messages; `has_several`: a row may have several.
    """

    has_labels, has_several, what = True, False, "label"

    def are_labels(self, values: Sequence) -> bool:
        return label_like(values)

    def text(self, value: Any, options: ReadOptions) -> str:
        """Return the label text of a cell; raises ValueError for a wrong row, InputError if all are."""
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        task, separator = (
            ("multi_path" if options.label_hierarchy else "multi_label"),
            options.label_hierarchy,
        )
        if options.label_columns is not None:
            return levels_text(value, separator)
        # Not wrong rows: to skip such rows would skip those with several labels
        is_list = isinstance(value, list) and value and all(isinstance(one, (str, int)) for one in value)
        if is_list or isinstance(value, dict):
            remedy = f"write one label, or a list of several labels and set --data.task {task}"
            raise InputError(f"a row must have one label, found {excerpt(value)}; {remedy}")
        return path_of(label_text(value), separator)

    def labels_in(self, text: str) -> list[str]:
        return [text]

    def unknown(self, text: str, names: list[str], accept_ids: bool = True) -> str | None:
        """Return a label of a label text that is not one of `names`, for a message, with the nearest name and
        those that there are; None where all are known."""
        for label in self.labels_in(text):
            if label not in label_ids(tuple(names), accept_ids):
                said = _("{label}{near} (known: {names})")
                return said.format(label=excerpt(label), near=nearest(label, names), names=listed(names))
        return None

    def names(self, config: DataConfig, train: Any) -> list[str]:
        """Return the names of the labels by id, of the settings, else of the table of the train file."""
        if config.labels is not None:
            return config.labels
        if separator := separator_in(train.label_values):
            code, label = next(one for one in enumerate(train.label_values) if separator in one[1])
            said = _(
                "{where}: a row must have one label, found {label}; for several labels a row set --data.task "
                "{task} --data.label_separator '{separator}'; if it is one label, list all in --data.labels"
            )
            where = train.where(np.flatnonzero(train.labels == code)[0])
            task = "multi_path" if config.label_hierarchy else "multi_label"
            values = {"label": excerpt(label), "task": task, "separator": separator}
            raise InputError(said.format(where=where, **values))
        return sort_labels(train.label_values)

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        """Return the labels of label texts, all of them known, (num_texts, ...)."""
        ids = label_ids(tuple(names))
        return np.array([ids[text] for text in texts], dtype=np.int64)

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
                has_label = labels[name][:, label] if labels[name].ndim > 1 else labels[name] == label
                if len(matches := rows[name][np.flatnonzero(has_label)]):
                    first = tables.get(name, tables["train"]).where(int(matches[0]))
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
        return {"classes": dict(zip(names, counts(labels, len(names)).tolist(), strict=False))}


def separator_in(labels: list[str]) -> str | None:
    """Return the separator of several labels in one, if half of the parts come again, or None."""
    for separator in USUAL_SEPARATORS:
        joined = [{part.strip() for part in label.split(separator)} for label in labels if separator in label]
        parts = Counter(part for parts in joined for part in parts if part)
        again = sum(count > 1 or part in labels for part, count in parts.items())
        if joined and 2 * again >= len(parts):
            return separator
    return None


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


class OrderedLabels(LabelForm):
    """Class ids (num_rows,) int64, in the order of the labels from the lowest to the highest."""

    def names(self, config: DataConfig, train: Any) -> list[str]:
        labels = super().names(config, train)
        if config.labels is not None:
            return labels
        if len({number_of(label) for label in labels} - {None}) < len(labels):
            raise InputError(
                f"{train.source}: the order of labels that are not different numbers must be known, found "
                f"{listed(map(repr, labels))}; list all from the lowest to the highest in --data.labels"
            )
        return sorted(labels, key=number_of)


class NumberLabels(LabelForm):
    """The labels of rows are numbers, (num_rows,) float64; a label text is a number as Python writes it."""

    what = "number"

    def are_labels(self, values: Sequence) -> bool:
        return len(values) >= MIN_ROWS and None not in map(number_of, values)

    def text(self, value: Any, options: ReadOptions) -> str:
        number = number_of(label_text(value) if isinstance(value, str) else value)
        if number is None:
            remedy = "fix the row, or set --data.label_column, or --data.header true if this is a header"
            raise ValueError(
                f"the label must be a number up to {LARGEST:g}, found {excerpt(value)}; {remedy}"
            )
        return repr(number)

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


def number_of(value: Any) -> float | None:
    """Return the number in a cell, None where there is none or it is too large."""
    is_number = isinstance(value, (int, float, Decimal, str)) and not isinstance(value, bool)
    try:
        # Python reads 1_000 too
        number = float(str(value)) if is_number and "_" not in str(value) else math.nan
    except ValueError:
        return None
    return number if abs(number) <= LARGEST else None


class LabelLists(LabelForm):
    """The labels of rows are 0 and 1, (num_rows, num_labels) uint8; a label text is a JSON list, in which a
    label is once."""

    has_several, what = True, "set of labels"

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is None:
            labels = [label_text(label) for label in labels_in_cell(value, options.label_separator)]
        else:
            has_label = [ZERO_OR_ONE.get(str(one).strip().lower()) for one in value]
            if None in has_label:
                at = has_label.index(None)
                rule = f"the column {excerpt(options.label_columns[at])} of data.label_columns must be 0 or 1"
                raise ValueError(f"{rule}, found {excerpt(value[at])}; fix the row")
            labels = list(compress(options.label_columns, has_label))
        if separator := options.label_hierarchy:
            labels = without_ancestors([path_of(label, separator) for label in labels], separator)
        return json.dumps(sorted(set(labels)), ensure_ascii=False)

    def labels_in(self, text: str) -> list[str]:
        return json.loads(text)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        in_train = {label for text in train.label_values for label in json.loads(text)}
        return config.labels or config.label_columns or sort_labels(list(in_train))

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        matrix, ids = np.zeros((len(texts), len(names)), dtype=np.uint8), label_ids(tuple(names))
        for row, text in enumerate(texts):
            matrix[row, [ids[label] for label in json.loads(text)]] = 1
        return matrix

    def groups(self, labels: np.ndarray) -> np.ndarray:
        # Most lists of labels are in few rows
        return np.zeros(len(labels), np.int64)

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return also `unlabelled`, the rows without a label, and `labels_per_row`, their mean number."""
        per_row = labels.sum(axis=1, dtype=np.int64)
        more = {"unlabelled": int((per_row == 0).sum()), "labels_per_row": float(per_row.mean())}
        return super().statistics(labels, names) | more


def labels_in_cell(value: Any, separator: str | None) -> list:
    """Return the labels in a value, not cleaned: a list, text with separators, or nothing. Raises ValueError
    for a wrong row, and InputError where it is not known how several labels are written."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if not isinstance(value, str):
        return value if isinstance(value, list) else [value]
    if value.lstrip().startswith("["):
        remedy = "fix the row, or set --data.label_separator for labels without brackets"
        raise ValueError(f'a list of labels must be JSON, like ["a", "b"], found {excerpt(value)}; {remedy}')
    if separator is not None:
        return [label for label in value.split(separator) if label.strip()]
    if usual := next((character for character in USUAL_SEPARATORS if character in value), None):
        found = f"found {excerpt(value)}; set --data.label_separator '{usual}', or write a JSON list"
        raise InputError(f"cannot tell whether this is one label or several: {found}")
    return [value]


def path_of(label: str, separator: str | None) -> str:
    """Return a label, in a hierarchy without white space around its levels; raises ValueError where a level
    is empty."""
    if separator is None:
        return label
    levels = [level.strip() for level in label.split(separator)]
    if not all(levels):
        problem = f"level {levels.index('') + 1} of the label is empty, found {excerpt(label)}"
        raise ValueError(f"{problem}; write '{separator}' between two levels only, or fix the row")
    return separator.join(levels)


def levels_text(cells: Sequence, separator: str) -> str:
    """Return the path whose levels have a column each; those after its end are empty. Raises ValueError."""
    levels = ["" if one is None or not str(one).strip() else label_text(one) for one in cells]
    while levels and not levels[-1]:
        levels.pop()
    if not levels or "" in levels or any(separator in level for level in levels):
        rule = f"the levels must be filled from the first on, without '{separator}' in them"
        remedy = "fix the row, or choose another --data.label_hierarchy"
        raise ValueError(f"{rule}, found {excerpt(levels)}; {remedy}")
    return separator.join(levels)


def without_ancestors(labels: Iterable[str], separator: str) -> list[str]:
    """Return the labels of a row without those above another one: files may name each level of a path."""
    labels = list(labels)
    return [label for label in labels if not any(one.startswith(label + separator) for one in labels)]


# The keys are values of data.task
LABEL_FORMS = {
    "single_label": LabelForm(),
    "multi_label": LabelLists(),
    "ordinal": OrderedLabels(),
    "regression": NumberLabels(),
    "single_path": LabelForm(),
    "multi_path": LabelLists(),
    "masked_language_modelling": NoLabels(),
}


def label_form(task: str | None) -> LabelForm:
    """Return the form of a task's labels: one label a row for an unknown task, of another program."""
    return LABEL_FORMS.get(task, LABEL_FORMS["single_label"])
