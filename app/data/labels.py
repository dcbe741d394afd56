"""The labels of each task: how they are read, what they are called, their arrays."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest, shorten
from .label_cells import (
    INTEGER,
    LARGEST_NUMBER,
    ZERO_OR_ONE,
    label_text,
    number_of,
    path_of,
    refuse_vector,
)
from .read import ReadOptions

USUAL_SEPARATORS = (",", "|", ";", "，", "；", "、")
MAX_RANGES = 10  # ranges of numbers whose proportions a split keeps
MIN_ROWS_OF_RANGE = 20


@lru_cache(16)
def label_ids(names: tuple[str, ...], accept_ids: bool = True) -> dict[str, int]:
    """Return the id of each label as files write it: by name, of which label_text takes off __label__ and .0;
    with `accept_ids` also the id itself, unless a name is an integer."""
    ids = {}
    if accept_ids and not any(map(INTEGER.fullmatch, names)):
        for label_id in range(len(names)):
            ids[str(label_id)] = label_id
    for label_id, name in enumerate(names):
        ids[name.removeprefix("__label__").removesuffix(".0")] = label_id
    # The whole name counts before another one without its __label__ or .0
    for label_id, name in enumerate(names):
        ids[name] = label_id
    return ids


def sort_labels(values: list[str]) -> list[str]:
    """Return labels in order; integers are sorted as numbers."""
    if all(map(INTEGER.fullmatch, values)):
        return sorted(values, key=int)
    return sorted(values)


def refuse_joined_labels(labels: list[str], config: DataConfig, source: str) -> None:
    """Raise InputError where the parts of a label, between separators or spaces, are labels too."""
    all_labels = set(labels)
    for label in labels:
        for separator in (*USUAL_SEPARATORS, " "):
            if separator not in label:
                continue
            parts = set(map(str.strip, label.split(separator)))
            if parts <= all_labels:
                task = _task_of_several(config.label_hierarchy)
                raise InputError(
                    f"{source}: the parts of the label {excerpt(label)} are labels too; for several labels a "
                    f"row set --data.task {task} --data.label_separator '{separator}', else list all in "
                    "--data.labels"
                )


def _task_of_several(label_hierarchy: str | None) -> str:
    """Return the data.task for several labels a row."""
    if label_hierarchy:
        return "multi_path"
    return "multi_label"


def labels_of_text(text: str, separator: str | None) -> list[str]:
    """Return the labels in a text, which stand between separators; raises InputError where it cannot be told
    whether they are one or several."""
    usual_separator = next(filter(text.__contains__, USUAL_SEPARATORS), None)
    may_be_several = separator is None and usual_separator is not None
    if may_be_several or text.lstrip().startswith("["):
        raise InputError(
            f"cannot tell whether this is one label or several: found {excerpt(text)}; set "
            f"--data.label_separator '{usual_separator or ','}', or write a JSON list"
        )
    labels = [text]
    if separator is not None:
        labels = text.split(separator)
    return [label for label in labels if label.strip()]


class LabelForm:
    """How the labels of a task are read, what they are called, and their array in a dataset: one label a row,
    as class ids (num_rows,) int64. The other forms override what differs.

    A *label text* is what a table has of a row's label; `has_several`: a row may have several labels.
    """

    has_labels = True
    has_several = False
    are_numbers = False

    def text(self, value: Any, options: ReadOptions) -> str:
        """Return the label text of a cell; raises ValueError for a wrong row, InputError if all are."""
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        refuse_vector(value)
        if isinstance(value, (list, dict)) and value:
            # It is an error of the file: skipping such rows would skip those with several labels
            raise InputError(
                f"a row must have one label, found {excerpt(value)}; write one label, or a list of several "
                f"labels and set --data.task {_task_of_several(options.label_hierarchy)}"
            )
        return path_of(label_text(value), options.label_hierarchy)

    def labels_in(self, text: str) -> list[str]:
        """Return the labels of a label text."""
        return [text]

    def text_of_labels(self, labels: list[str]) -> str:
        """Return the label text of a row with these labels."""
        [label] = labels
        return label

    def unknown(self, text: str, names: list[str], accept_ids: bool) -> str | None:
        """Return a label of a label text that is not one of `names`, for a message, with the nearest name and
        those that there are; None where all are known. With `accept_ids`, integers may be ids of labels."""
        ids = label_ids(tuple(names), accept_ids)
        for label in self.labels_in(text):
            if label in ids:
                continue
            known = f"known: {listed(names)}"
            if accept_ids and INTEGER.fullmatch(label):
                return f"{excerpt(label)} ({known}; integers are read as numbers of these labels, from 0)"
            return f"{excerpt(label)}{nearest(label, names)} ({known})"
        return None

    def names(self, config: DataConfig, values: list[str], source: str) -> list[str]:
        """Return the names of the labels by id: those of the settings, else the label texts (`values`) of the
        train file, which messages call `source`."""
        if config.labels is not None:
            return config.labels
        refuse_joined_labels(values, config, source)
        return sort_labels(values)

    def encode_labels(self, label_texts: list[str], names: list[str]) -> np.ndarray:
        """Return the labels of label texts, all of them known, (num_texts, ...)."""
        ids = label_ids(tuple(names))
        return np.array([ids[text] for text in label_texts], dtype=np.int64)

    def groups(self, labels: np.ndarray) -> np.ndarray:
        """Return the group of each row, (num_rows,) int64, whose proportion a part of the rows keeps."""
        return labels

    def check(self, train: np.ndarray, source: str, names: list[str], mass: np.ndarray | None = None) -> None:
        """Raise InputError for labels of train, read from `source`, that nothing can be learnt from. Each of
        two or more labels must have a row; where rows have distributions of labels, a share of some rows:
        `mass` (num_labels,) are the sums of the shares."""
        rows_of_label = list(self.statistics(train, names)["classes"].values())
        if mass is not None:
            rows_of_label = mass
        for name, num_rows in zip(names, rows_of_label, strict=True):
            if num_rows == 0:
                raise InputError(
                    f"{source}: label '{shorten(name)}' is absent from train; add rows, or drop it from "
                    "data.labels"
                )
        if len(names) < 2:
            raise InputError(
                f"{source}: two or more labels are needed, found {listed(names)}; set --data.label_column"
            )

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return what the data report has of a split's labels: at least `classes`, the rows of each label."""
        counts = np.bincount(labels, minlength=len(names))
        return {"classes": dict(zip(names, counts.tolist(), strict=True))}


class NoLabels(LabelForm):
    """Texts only: all rows are class 0, which has no name."""

    has_labels = False

    def names(self, config: DataConfig, values: list[str], source: str) -> list[str]:
        return []

    def check(self, train: np.ndarray, source: str, names: list[str], mass: np.ndarray | None = None) -> None:
        pass

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        return {"classes": {}}


class OrderedLabels(LabelForm):
    """Class ids (num_rows,) int64, in the order of the labels from the lowest to the highest."""

    def names(self, config: DataConfig, values: list[str], source: str) -> list[str]:
        labels = super().names(config, values, source)
        if config.labels is not None:
            return labels
        numbers = set(map(number_of, labels))
        if None in numbers or len(numbers) < len(labels):
            raise InputError(
                f"{source}: the order of labels that are not different numbers must be known, found "
                f"{listed(map(repr, labels))}; list all from the lowest to the highest in --data.labels"
            )
        return sorted(labels, key=number_of)


class NumberLabels(LabelForm):
    """The labels of rows are numbers, (num_rows,) float64; a label text is a number as Python writes it."""

    are_numbers = True

    def text(self, value: Any, options: ReadOptions) -> str:
        if isinstance(value, str):
            number = number_of(label_text(value))
        else:
            number = number_of(value)
        if number is None:
            raise ValueError(
                f"the label must be a number up to {LARGEST_NUMBER:g}, found {excerpt(value)}; fix the row, "
                "or set --data.label_column, or --data.header true if this is a header"
            )
        return repr(number)

    def unknown(self, text: str, names: list[str], accept_ids: bool) -> str | None:
        return None

    def names(self, config: DataConfig, values: list[str], source: str) -> list[str]:
        return ["score"]

    def encode_labels(self, label_texts: list[str], names: list[str]) -> np.ndarray:
        return np.array([float(text) for text in label_texts], dtype=np.float64)

    def groups(self, labels: np.ndarray) -> np.ndarray:
        # Ranges of numbers have about equally many rows
        num_ranges = min(MAX_RANGES, max(1, len(labels) // MIN_ROWS_OF_RANGE))
        edges = np.unique(np.quantile(labels, np.arange(1, num_ranges) / num_ranges))
        ranges = np.searchsorted(edges, labels)
        return np.unique(ranges, return_inverse=True)[1]

    def check(self, train: np.ndarray, source: str, names: list[str], mass: np.ndarray | None = None) -> None:
        if len(train) and float(np.ptp(train)) == 0:
            raise InputError(
                f"{source}: the numbers of train must differ, found {train[0]:g} in all rows; is "
                "data.label_column the right column?"
            )

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        return {
            "classes": {},
            "mean": float(labels.mean()),
            "deviation": float(labels.std()),
            "least": float(labels.min()),
            "largest": float(labels.max()),
        }


class LabelLists(LabelForm):
    """The labels of rows are 0 and 1, (num_rows, num_labels) uint8; a label text is a JSON list of names."""

    has_several = True

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is not None:
            labels = self._labels_of_columns(value, options.label_columns)
        else:
            labels = self._labels_of_cell(value, options.label_separator)
        if options.label_hierarchy:
            labels = _longest_paths(labels, options.label_hierarchy)
        return self.text_of_labels(labels)

    def labels_in(self, text: str) -> list[str]:
        return json.loads(text)

    def text_of_labels(self, labels: list[str]) -> str:
        return json.dumps(sorted(set(labels)), ensure_ascii=False)

    def _labels_of_columns(self, values: list, columns: list[str]) -> list[str]:
        """Return the labels of a row that has a column of 0 or 1 for each label."""
        has_label = [ZERO_OR_ONE.get(str(value).strip().lower()) for value in values]
        if None in has_label:
            number = has_label.index(None)
            raise ValueError(
                f"the column {excerpt(columns[number])} of data.label_columns must be 0 or 1, found "
                f"{excerpt(values[number])}; fix the row"
            )
        return list(compress(columns, has_label))

    def _labels_of_cell(self, value: Any, separator: str | None) -> list[str]:
        """Return the labels of a cell, which has a list, or text with labels between separators."""
        if isinstance(value, str):
            value = labels_of_text(value, separator)
        refuse_vector(value)
        if value is None:
            return []
        if not isinstance(value, list):
            value = [value]
        return list(map(label_text, value))

    def names(self, config: DataConfig, values: list[str], source: str) -> list[str]:
        if config.labels:
            return config.labels
        if config.label_columns:
            return config.label_columns
        labels = set()
        for text in values:
            labels.update(self.labels_in(text))
        names = sort_labels(list(labels))
        refuse_joined_labels(names, config, source)
        return names

    def encode_labels(self, label_texts: list[str], names: list[str]) -> np.ndarray:
        ids = label_ids(tuple(names))
        matrix = np.zeros((len(label_texts), len(names)), dtype=np.uint8)
        for row, text in enumerate(label_texts):
            for label in self.labels_in(text):
                matrix[row, ids[label]] = 1
        return matrix

    def groups(self, labels: np.ndarray) -> np.ndarray:
        # Most lists of labels are in few rows
        return np.zeros(len(labels), np.int64)

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        counts = labels.sum(axis=0, dtype=np.int64)
        return {"classes": dict(zip(names, counts.tolist(), strict=True))}


def _longest_paths(labels: list[str], separator: str) -> list[str]:
    """Return labels as paths, without levels of other paths: files may name each level of a path."""
    paths = [path_of(label, separator) for label in labels]
    longest_paths = []
    for path in paths:
        beginning = path + separator
        if not any(other_path.startswith(beginning) for other_path in paths):
            longest_paths.append(path)
    return longest_paths


# The form of the labels of each data.task
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


def task_of_labels(has_several: bool = False, are_numbers: bool = False) -> str:
    """Return the task of labels without an order and without levels: one a row, several a row, or numbers."""
    if are_numbers:
        return "regression"
    return "multi_label" if has_several else "single_label"
