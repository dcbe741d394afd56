"""Labels in a hierarchy: a label is the path of its levels, with a separator between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest
from ..words import _
from .cells import label_text
from .label_cells import decode_labels, encode_labels
from .label_form import OneLabel
from .label_lists import LabelLists
from .readers import ReadOptions
from .readers.excel import EMPTY


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
    filled = [not (value is None or value is EMPTY or not str(value).strip()) for value in values]
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
