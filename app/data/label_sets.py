"""Several labels a row, or none, labels that are paths in a hierarchy, and the form of each task."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed
from .cells import label_text, shown
from .file_formats import ReadOptions
from .labels import (
    USUAL_SEPARATORS,
    LabelForm,
    NoLabels,
    NumberLabels,
    OneLabel,
    OrderedLabels,
    resolve_label,
    sort_labels,
)

# In lower case
ZERO_OR_ONE = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}


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


def labels_in_columns(values: list, names: list[str]) -> list[str]:
    labels = []
    for value, name in zip(values, names, strict=True):
        is_one = ZERO_OR_ONE.get(str(value).strip().lower())
        if is_one is None:
            rule = f"the column {excerpt(name)} of data.label_columns must be 0 or 1"
            raise ValueError(f"{rule}, found {shown(value)}; fix the row")
        labels += [name] if is_one else []
    return labels


class LabelLists(LabelForm):
    """The labels of rows are 0 and 1, (num_rows, num_labels) uint8; a label text is a JSON list, in which a
    label is once."""

    has_several = True
    what = "set of labels"

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is not None:
            labels = labels_in_columns(value, options.label_columns)
        else:
            labels = [label_text(label) for label in labels_in_cell(value, options.label_separator)]
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


def path_of_columns(values: list, options: ReadOptions) -> str:
    """Return the label of one column for each level, where the levels after its end are empty; raises
    ValueError with the problem of this row."""
    separator = separator_of(options)
    levels = ["" if value is None or not str(value).strip() else label_text(value) for value in values]
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
        if options.label_columns is not None:
            return path_of_columns(value, options)
        separator = separator_of(options)
        return separator.join(levels_of(super().text(value, options), separator))


class PathLists(Paths, LabelLists):
    """Several paths a row, or none: 0 and 1, (num_rows, num_labels) uint8."""

    what = "set of paths"

    def cleaned(self, labels: list[str], options: ReadOptions) -> list[str]:
        separator = separator_of(options)
        paths = [separator.join(levels_of(label, separator)) for label in labels]
        return without_ancestors(paths, separator)


# By data.task
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
