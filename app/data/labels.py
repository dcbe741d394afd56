"""The labels of each task: how they are read, what they are called, their arrays."""

from __future__ import annotations

import json
import math
import re
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from itertools import compress, product
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest, shorten
from ..words import _
from .cells import clean_text
from .read import ReadOptions

# These are the values of a column for each label, in lower case
ZERO_OR_ONE = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
USUAL_SEPARATORS = (",", "|", ";", "，", "；", "、")
MAX_RANGES, ROWS_OF_RANGE = 10, 20  # ranges of numbers whose proportions a split keeps, least rows of one
LARGEST = 1e100  # the squares of larger numbers do not add up
INTEGER = re.compile("-?[0-9]{1,18}")


@lru_cache(16)
def label_ids(names: tuple[str, ...], accept_ids: bool = True) -> dict[str, int]:
    """Return the id of each label as files write it: by name, of which label_text takes the .0 off; with
    `accept_ids` also the id itself, unless a name is an integer."""
    ids = {name.removesuffix(".0"): at for at, name in enumerate(names)}
    if accept_ids and not any(map(INTEGER.fullmatch, names)):
        ids = {str(at): at for at in range(len(names))} | ids
    return ids | {name: at for at, name in enumerate(names)}


def sort_labels(values: list[str]) -> list[str]:
    return sorted(values, key=int) if all(map(INTEGER.fullmatch, values)) else sorted(values)


def label_text(value: Any) -> str:
    """Return one label as a string, as JSON and fastText mean it: true, 1.0 as 1, without __label__; raises
    ValueError with the problem."""
    text = value
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, bytes):
        text = value.decode(errors="surrogateescape")
    elif isinstance(value, (date, time)):
        text = str(value).removesuffix(" 00:00:00")
    elif isinstance(value, int) or (isinstance(value, (float, Decimal)) and value % 1 == 0):
        # Integers come as floats from a column with missing values, and as decimals from databases
        text = str(int(value))
    if not isinstance(text, str):
        remedy = "fix the row or set --data.label_column"
        raise ValueError(f"the label must be a string or an integer, found {excerpt(value)}; {remedy}")
    return re.sub(r"^(-?\d{1,18})\.0$", r"\1", clean_text(text, False, "label").removeprefix("__label__"))


def check_parts(labels: list[str], config: DataConfig, source: str) -> None:
    """Raise InputError where the parts of a label, between separators or spaces, are labels too."""
    known = set(labels)
    for label, mark in product(labels, (*USUAL_SEPARATORS, " ")):
        if mark in label and known >= {part.strip() for part in label.split(mark)}:
            said = _(
                "{source}: the parts of the label {label} are labels too; for several labels a row set "
                "--data.task {task} --data.label_separator '{separator}', else list all in --data.labels"
            )
            task = "multi_path" if config.label_hierarchy else "multi_label"
            raise InputError(said.format(source=source, label=excerpt(label), task=task, separator=mark))


def refuse_vector(value: Any) -> None:
    """Raise InputError for a list of 0 and 1 that says which labels a row has, but not their names."""
    if not isinstance(value, list) or len(value) < 2:
        return
    are_flags = all(isinstance(number, (bool, int, float)) and number in (0, 1) for number in value)
    # Labels may be called 0 and 1, but no row has one of them twice
    if are_flags and len(set(value)) < len(value):
        raise InputError(
            f"a list must have the names of the labels, found the vector {excerpt(value)}; write their "
            "names, or a column of 0 and 1 for each label with --data.task multi_label --data.label_columns"
        )


class LabelForm:
    """How the labels of a task are read, what they are called, and their array in a dataset: one label a row,
    as class ids (num_rows,) int64. The other forms override what differs.

    A *label text* is what a table has of a row's label; `has_several`: a row may have several labels.
    """

    has_labels, has_several, are_numbers = True, False, False

    def text(self, value: Any, options: ReadOptions) -> str:
        """Return the label text of a cell; raises ValueError for a wrong row, InputError if all are."""
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        refuse_vector(value)
        if isinstance(value, (list, dict)) and value:
            # No wrong row: to skip such rows would skip those with several labels
            task = "multi_path" if options.label_hierarchy else "multi_label"
            remedy = f"write one label, or a list of several labels and set --data.task {task}"
            raise InputError(f"a row must have one label, found {excerpt(value)}; {remedy}")
        return path_of(label_text(value), options.label_hierarchy)

    def unknown(self, text: str, names: list[str], accept_ids: bool) -> str | None:
        """Return a label of a label text that is not one of `names`, for a message, with the nearest name and
        those that there are; None where all are known. With `accept_ids`, integers may be ids of labels."""
        if self.are_numbers:
            return None
        for label in json.loads(text) if self.has_several else [text]:
            if label not in label_ids(tuple(names), accept_ids):
                said = _("{label}{near} (known: {names})")
                if accept_ids and INTEGER.fullmatch(label):
                    said = _("{label} (known: {names}; integers are read as numbers of these labels, from 0)")
                return said.format(label=excerpt(label), near=nearest(label, names), names=listed(names))
        return None

    def names(self, config: DataConfig, train: Any) -> list[str]:
        """Return the names of the labels by id, of the settings, else of the table of the train file."""
        if not self.has_labels:
            return []
        if config.labels is not None:
            return config.labels
        check_parts(train.label_values, config, train.source)
        return sort_labels(train.label_values)

    def encode_labels(self, label_texts: list[str], names: list[str]) -> np.ndarray:
        """Return the labels of label texts, all of them known, (num_texts, ...)."""
        ids = label_ids(tuple(names))
        return np.array([ids[text] for text in label_texts], dtype=np.int64)

    def groups(self, labels: np.ndarray) -> np.ndarray:
        """Return the group of each row, (num_rows,) int64, whose proportion a part of the rows keeps."""
        return labels

    def check(self, train: np.ndarray, source: str, names: list[str]) -> None:
        """Raise InputError for labels of train, read from `source`, that nothing can be learnt from. Each of
        two or more labels must have a row."""
        if absent := [name for name, rows in self.statistics(train, names)["classes"].items() if not rows]:
            said = _("{path}: label '{label}' is absent from train; add rows, or drop it from data.labels")
            raise InputError(said.format(path=source, label=shorten(absent[0])))
        if self.has_labels and len(names) < 2:
            said = _("{path}: two or more labels are needed, found {labels}; set --data.label_column")
            raise InputError(said.format(path=source, labels=listed(names)))

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return what the data report has of a split's labels: at least `classes`, the rows of each label."""
        is_matrix, number = labels.ndim > 1, len(names)
        counts = labels.sum(axis=0, dtype=np.int64) if is_matrix else np.bincount(labels, minlength=number)
        return {"classes": dict(zip(names, counts.tolist(), strict=False))}


class NoLabels(LabelForm):
    """Texts only: all rows are class 0."""

    has_labels = False


class OrderedLabels(LabelForm):
    """Class ids (num_rows,) int64, in the order of the labels from the lowest to the highest."""

    def names(self, config: DataConfig, train: Any) -> list[str]:
        labels = super().names(config, train)
        if config.labels is None and len({number_of(label) for label in labels} - {None}) < len(labels):
            raise InputError(
                f"{train.source}: the order of labels that are not different numbers must be known, found "
                f"{listed(map(repr, labels))}; list all from the lowest to the highest in --data.labels"
            )
        return sorted(labels, key=number_of) if config.labels is None else labels


class NumberLabels(LabelForm):
    """The labels of rows are numbers, (num_rows,) float64; a label text is a number as Python writes it."""

    are_numbers = True

    def text(self, value: Any, options: ReadOptions) -> str:
        number = number_of(label_text(value) if isinstance(value, str) else value)
        if number is None:
            remedy = "fix the row, or set --data.label_column, or --data.header true if this is a header"
            raise ValueError(
                f"the label must be a number up to {LARGEST:g}, found {excerpt(value)}; {remedy}"
            )
        return repr(number)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        return ["score"]

    def encode_labels(self, label_texts: list[str], names: list[str]) -> np.ndarray:
        return np.array([float(text) for text in label_texts], dtype=np.float64)

    def groups(self, labels: np.ndarray) -> np.ndarray:
        # Ranges have about equally many rows
        number = min(MAX_RANGES, max(1, len(labels) // ROWS_OF_RANGE))
        edges = np.unique(np.quantile(labels, np.arange(1, number) / number))
        return np.unique(np.searchsorted(edges, labels), return_inverse=True)[1]

    def check(self, train: np.ndarray, source: str, names: list[str]) -> None:
        if len(train) and float(np.ptp(train)) == 0:
            found = f"found {train[0]:g} in all rows; is data.label_column the right column?"
            raise InputError(f"{source}: the numbers of train must differ, {found}")

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
    """The labels of rows are 0 and 1, (num_rows, num_labels) uint8; a label text is a JSON list of names."""

    has_several = True

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is not None:
            has_label = [ZERO_OR_ONE.get(str(one).strip().lower()) for one in value]
            if None in has_label:
                at = has_label.index(None)
                rule = f"the column {excerpt(options.label_columns[at])} of data.label_columns must be 0 or 1"
                raise ValueError(f"{rule}, found {excerpt(value[at])}; fix the row")
            labels = list(compress(options.label_columns, has_label))
        else:
            if isinstance(value, str):
                separator, usual = options.label_separator, [one for one in USUAL_SEPARATORS if one in value]
                if value.lstrip().startswith("[") or (separator is None and usual):
                    rule = "cannot tell whether this is one label or several"
                    remedy = f"set --data.label_separator '{(usual or ',')[0]}', or write a JSON list"
                    raise InputError(f"{rule}: found {excerpt(value)}; {remedy}")
                cells = [value] if separator is None else value.split(separator)
                value = [label for label in cells if label.strip()]
            refuse_vector(value)
            cells = value if isinstance(value, list) else [] if value is None else [value]
            labels = list(map(label_text, cells))
        if separator := options.label_hierarchy:
            paths = [path_of(label, separator) for label in labels]
            # Files may name each level of a path
            labels = [one for one in paths if not any(path.startswith(one + separator) for path in paths)]
        return json.dumps(sorted(set(labels)), ensure_ascii=False)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        if config.labels or config.label_columns:
            return config.labels or config.label_columns
        in_train = sort_labels(list({label for text in train.label_values for label in json.loads(text)}))
        check_parts(in_train, config, train.source)
        return in_train

    def encode_labels(self, label_texts: list[str], names: list[str]) -> np.ndarray:
        matrix, ids = np.zeros((len(label_texts), len(names)), dtype=np.uint8), label_ids(tuple(names))
        for row, text in enumerate(label_texts):
            matrix[row, [ids[label] for label in json.loads(text)]] = 1
        return matrix

    def groups(self, labels: np.ndarray) -> np.ndarray:
        # Most lists of labels are in few rows
        return np.zeros(len(labels), np.int64)


def path_of(label: str, separator: str | None) -> str:
    """Return a label, in a hierarchy without spaces around levels; raises ValueError for an empty level."""
    levels = [level.strip() for level in label.split(separator)] if separator else [label]
    if not all(levels):
        problem = f"level {levels.index('') + 1} of the label is empty, found {excerpt(label)}"
        raise ValueError(f"{problem}; write '{separator}' between two levels only, or fix the row")
    return (separator or "").join(levels)


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
