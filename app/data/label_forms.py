"""The form of the labels of each task: how they are read, what they are called, and their array in a
dataset."""

from __future__ import annotations

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt
from .label_cells import separator_in
from .labels import resolve_label, sort_labels
from .multi_label_rows import label_matrix, names_in_lists
from .readers import MultiLabelOptions, ReadOptions
from .table import Table


class NoLabels:
    """Texts only: all rows are class 0."""

    has_labels = False
    # With these options a file of the task is read
    options: type[ReadOptions] = ReadOptions

    def names(self, config: DataConfig, train: Table) -> list[str]:
        """Return the names of the labels in the order of their ids: those of the settings, else those in the
        train file."""
        return []

    def of_rows(self, table: Table, label_names: list[str]) -> np.ndarray:
        """Return the labels of a table's rows, (num_rows, ...); without names, zeros (num_rows,) int64."""
        return np.zeros(table.num_rows, dtype=np.int64)


class OneLabel(NoLabels):
    """One label a row: class ids (num_rows,) int64."""

    has_labels = True

    def names(self, config: DataConfig, train: Table) -> list[str]:
        if config.labels is None:
            _refuse_several(train)
        return config.labels or sort_labels(train.label_values)

    def of_rows(self, table: Table, label_names: list[str]) -> np.ndarray:
        if not label_names:
            return super().of_rows(table, label_names)
        codes = np.array([resolve_label(value, label_names) for value in table.label_values], dtype=np.int64)
        return codes[table.array("labels")]


class LabelLists(NoLabels):
    """Several labels a row, or none: 0 and 1, (num_rows, num_labels) uint8."""

    has_labels = True
    options = MultiLabelOptions

    def names(self, config: DataConfig, train: Table) -> list[str]:
        return config.labels or config.label_columns or names_in_lists(train.label_values)

    def of_rows(self, table: Table, label_names: list[str]) -> np.ndarray:
        if not label_names:
            return super().of_rows(table, label_names)
        return label_matrix(table.label_values, label_names)[table.array("labels")]


LABEL_FORMS = {
    "single_label": OneLabel(),
    "multi_label": LabelLists(),
    "masked_language_modelling": NoLabels(),
}


def _refuse_several(train: Table) -> None:
    """Raise InputError where labels are several in one, with a separator between them."""
    separator = separator_in(train.label_values)
    if separator is None:
        return
    codes = [code for code, label in enumerate(train.label_values) if separator in label]
    rows = np.flatnonzero(np.isin(train.array("labels"), codes))
    first = train.label_values[train.array("labels")[rows[0]]]
    raise InputError(
        f"{train.where(rows[0])}: a row must have one label, found {excerpt(first)}, and '{separator}' in "
        f"{len(rows):,} of {train.num_rows:,} labels; for several labels a row set --data.task multi_label "
        f"--data.label_separator '{separator}'; if each of these is one label, list all labels in "
        "--data.labels"
    )


def label_form(task: str | None) -> NoLabels:
    """Return the form of a task's labels: one label a row where the task is not known, as of a checkpoint of
    another program."""
    return LABEL_FORMS.get(task, LABEL_FORMS["single_label"])
