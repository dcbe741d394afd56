"""Several labels a row, or none, labels that are paths in a hierarchy, and the form of each task."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest
from ..words import _
from .cells import label_text, shown, string_of
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
from .read import ReadOptions
from .splits import deal_multi_label, label_list_ids, split_multi_label

ZERO_OR_ONE = {"0": False, "1": True, "0.0": False, "1.0": True, "False": False, "True": True}


def labels_in_cell(value: Any, separator: str | None) -> list:
    """Return the labels in the value of a column, not cleaned: a list, a JSON list, text with separators.

    Nothing (None, an empty cell, an empty list) is no label. Raises ValueError with the problem of this row,
    and InputError where all rows with several labels have it, so that none of them is skipped.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f'a list of labels must be JSON, like ["a", "b"], found {excerpt(value)}; '
                "fix the row, or set --data.label_separator for labels without brackets"
            ) from error
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    if separator is not None:
        return [label for label in value.split(separator) if label.strip()]
    usual = next((character for character in USUAL_SEPARATORS if character in value), None)
    if usual is not None:
        raise InputError(
            f"cannot tell whether this is one label or several: found {excerpt(value)}; set "
            f"--data.label_separator '{usual}', or write a JSON list"
        )
    return [value]


def labels_in_columns(values: list, names: list[str]) -> list[str]:
    """Return the `names` of the columns whose value is 1; raises ValueError for one that is not 0 or 1."""
    labels = []
    for value, name in zip(values, names, strict=True):
        is_one = ZERO_OR_ONE.get(str(value).strip())
        if is_one is None:
            raise ValueError(
                f"the column {excerpt(name)} of data.label_columns must be 0 or 1, found {shown(value)}; fix "
                "the row"
            )
        labels += [name] if is_one else []
    return labels


def encode_labels(labels: list[str]) -> str:
    """Return the text of a set; a label that is there twice counts once."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def decode_labels(text: str) -> list[str]:
    """Return the labels of a set."""
    return json.loads(text)


class LabelLists(LabelForm):
    """The labels of rows are 0 and 1, (num_rows, num_labels) uint8; a label text is a JSON list."""

    has_several = True
    what = "set of labels"

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is not None:
            return encode_labels(labels_in_columns(value, options.label_columns))
        return encode_labels([label_text(label) for label in labels_in_cell(value, options.label_separator)])

    def text_of_fix(self, value: Any, options: ReadOptions) -> str:
        if value is None or (isinstance(value, str) and not super().text_of_fix(value, options)):
            return ""
        try:
            labels = labels_in_cell(value, options.label_separator)
        except ValueError as error:
            # There is no separator to set
            if options.label_columns is None:
                raise
            raise InputError(
                f'several labels of a fix must be a JSON list, like ["a", "b"], found {excerpt(value)}; '
                "write one"
            ) from error
        names = [string_of(label, "label").strip() for label in labels]
        if not all(names):
            raise InputError(
                f"a label of the set is empty, found {excerpt(value)}; remove it or write its name"
            )
        return encode_labels(names)

    def labels_in(self, text: str) -> list[str]:
        return decode_labels(text)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        in_train = {label for text in train.label_values for label in decode_labels(text)}
        return config.labels or config.label_columns or sort_labels(list(in_train))

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        matrix = np.zeros((len(texts), len(names)), dtype=np.uint8)
        ids: dict[str, int | None] = {}
        for row, text in enumerate(texts):
            for label in decode_labels(text):
                if label not in ids:
                    ids[label] = resolve_label(label, names)
                matrix[row, ids[label]] = 1
        return matrix

    def split(self, labels, hashes, dev, test, seed, names) -> dict[str, np.ndarray]:
        return split_multi_label(labels, hashes, dev, test, seed)

    def folds(self, labels: np.ndarray, hashes: np.ndarray, folds: int, seed: int) -> np.ndarray:
        num_texts = len(np.unique(hashes))
        if num_texts < folds:
            raise InputError(
                f"--folds must be at most the number of different texts; found {folds} folds for "
                f"{num_texts:,} texts"
            )
        return deal_multi_label(labels, hashes, np.full(folds, 1 / folds), seed)

    def classes(self, labels: np.ndarray) -> np.ndarray:
        """Return one class for all: most lists of labels are in few rows."""
        return np.zeros(len(labels), np.int64)

    def ids(self, labels: np.ndarray) -> np.ndarray:
        return label_list_ids(labels)

    def counts(self, labels: np.ndarray, num_labels: int) -> np.ndarray:
        return labels.sum(axis=0, dtype=np.int64)

    def rows_with(self, labels: np.ndarray, label: int) -> np.ndarray:
        return np.flatnonzero(labels[:, label])

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return also `unlabelled`, the rows without a label, and `labels_per_row`, their mean number."""
        per_row = labels.sum(axis=1, dtype=np.int64)
        return super().statistics(labels, names) | {
            "unlabelled": int((per_row == 0).sum()),
            "labels_per_row": float(per_row.mean()),
        }


def levels_of(label: str, separator: str) -> list[str]:
    """Return the levels of a label, the highest first, stripped; raises ValueError where one is empty."""
    levels = [level.strip() for level in label.split(separator)]
    if not all(levels):
        raise ValueError(
            f"level {levels.index('') + 1} of the label is empty, found {excerpt(label)}; write "
            f"'{separator}' between two levels only, or fix the row"
        )
    return levels


def path_of(label: str, options: ReadOptions) -> str:
    """Return a label as the labels of its kind are written; raises ValueError with the problem."""
    separator = separator_of(options)
    return separator.join(levels_of(label, separator))


def path_of_columns(values: list, options: ReadOptions) -> str:
    """Return the label of one column for each level, where the levels after its end are empty; raises
    ValueError with the problem of this row."""
    separator, names = separator_of(options), options.label_columns
    filled = [not (value is None or not str(value).strip()) for value in values]
    end = filled.index(False) if False in filled else len(filled)
    if end == 0 or any(filled[end:]):
        below = f", and {excerpt(names[end + filled[end:].index(True)])} below it is not" if end else ""
        raise ValueError(f"the level {excerpt(names[end])} is empty{below}; fill it in, or fix the row")
    levels = [label_text(value) for value in values[:end]]
    for name, level in zip(names, levels, strict=False):
        if separator in level:
            raise ValueError(
                f"the level {excerpt(name)} must not have '{separator}', which is between levels, found "
                f"{excerpt(level)}; choose another --data.label_hierarchy"
            )
    return separator.join(levels)


def separator_of(options: ReadOptions | DataConfig) -> str:
    """Return what is between two levels; raises InputError where that is not known."""
    separator = options.label_hierarchy
    if separator is None:
        raise InputError(
            f"data.label_hierarchy must be what is between the levels of a label with data.task "
            f"{options.task}, for instance '-' or '/', found None; set --data.label_hierarchy"
        )
    if separator == options.label_separator:
        raise InputError(
            "data.label_hierarchy and data.label_separator must differ: one is between levels, the other "
            f"between labels, found '{separator}' for both"
        )
    return separator


def check_paths(names: Iterable[str], config: DataConfig, where: str) -> None:
    """Raise InputError unless the names of labels are paths, and one of them has two levels or more."""
    names, separator = list(names), separator_of(config)
    try:
        depths = [len(levels_of(name, separator)) for name in names]
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    if names and max(depths) < 2:
        raise InputError(
            f"{where}: labels must have two or more levels with data.task {config.task}, and none has "
            f"'{separator}', found {listed(map(repr, names))}; set --data.label_hierarchy"
        )


def without_ancestors(labels: Iterable[str], separator: str) -> list[str]:
    """Return the labels of a row without those above another one: files may name each level of a path."""
    labels = list(labels)
    return [label for label in labels if not any(one.startswith(label + separator) for one in labels)]


def describe_unknown_path(label: str, names: list[str], separator: str) -> str:
    """Return an unknown label with its first level that no label has there, the nearest name, and those that
    are known there."""
    levels, paths = label.split(separator), [name.split(separator) for name in names]
    beginnings = [[path[:end] for path in paths] for end in range(1, len(levels) + 1)]
    depth = next((at for at, known in enumerate(beginnings) if levels[: at + 1] not in known), len(levels))
    known = list(
        dict.fromkeys(path[depth] for path in paths if path[:depth] == levels[:depth] and path[depth:])
    )
    if depth == len(levels):
        said = _("{label}, which has no level {level} (known there: {known})")
        return said.format(label=excerpt(label), level=depth + 1, known=listed(known))
    if not known:
        above = excerpt(separator.join(levels[:depth]))
        said = _("{label}, level {level} {name}: {above} has none below it")
        return said.format(label=excerpt(label), level=depth + 1, name=excerpt(levels[depth]), above=above)
    near = nearest(levels[depth], known)
    elsewhere = [name for name, path in zip(names, paths, strict=True) if levels[depth] in path]
    if elsewhere and not near:
        near = _("; did you mean '{name}'?").format(name=elsewhere[0])
    said = _("{label}, level {level} {name}{near} (known there: {known})")
    values = {"label": excerpt(label), "level": depth + 1, "name": excerpt(levels[depth])}
    return said.format(near=near, known=listed(known), **values)


class OnePath(OneLabel):
    """One path a row: class ids (num_rows,) int64. A path that ends above another one is its own label."""

    what = "path of labels"
    several = "multi_path"

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is not None:
            return path_of_columns(value, options)
        return path_of(super().text(value, options), options)

    def text_of_fix(self, value: Any, options: ReadOptions) -> str:
        text = super().text_of_fix(value, options)
        return path_of(text, options) if text else ""

    def describe_unknown(self, label: str, names: list[str], options: ReadOptions) -> str:
        return describe_unknown_path(label, names, separator_of(options))

    def names(self, config: DataConfig, train: Any) -> list[str]:
        names = super().names(config, train)
        check_paths(names, config, "data.labels" if config.labels else train.source)
        return names


class PathLists(LabelLists):
    """Several paths a row, or none: 0 and 1, (num_rows, num_labels) uint8."""

    what = "set of paths"

    def text(self, value: Any, options: ReadOptions) -> str:
        return self._paths(super().text(value, options), options)

    def text_of_fix(self, value: Any, options: ReadOptions) -> str:
        text = super().text_of_fix(value, options)
        return self._paths(text, options) if text else ""

    def _paths(self, text: str, options: ReadOptions) -> str:
        paths = [path_of(label, options) for label in decode_labels(text)]
        return encode_labels(without_ancestors(paths, separator_of(options)))

    def describe_unknown(self, label: str, names: list[str], options: ReadOptions) -> str:
        return describe_unknown_path(label, names, separator_of(options))

    def names(self, config: DataConfig, train: Any) -> list[str]:
        names = super().names(config, train)
        chosen = next((key for key in ("labels", "label_columns") if getattr(config, key)), None)
        check_paths(names, config, f"data.{chosen}" if chosen else train.source)
        return names


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
