"""The labels of a table's rows, as the task has them: class ids, or a matrix of 0 and 1."""

from __future__ import annotations

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt
from .label_cells import MULTI_LABEL_TASKS, separator_in
from .labels import resolve_label, sort_labels
from .multi_label_rows import label_matrix, names_in_lists
from .table import Table


def names_of_labels(config: DataConfig, train: Table) -> list[str]:
    """Return the names in the order of their ids: those of the settings, else those in the train file."""
    if config.task in MULTI_LABEL_TASKS:
        return config.labels or config.label_columns or names_in_lists(train.label_values)
    if config.labels is None:
        _refuse_several(train)
    return config.labels or sort_labels(train.label_values)


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


def labels_of_rows(table: Table, label_names: list[str], task: str) -> np.ndarray:
    """Return class ids (num_rows,) int64, or for lists of labels (num_rows, num_labels) uint8; without names
    all are class 0."""
    if not label_names:
        return np.zeros(table.num_rows, dtype=np.int64)
    if task in MULTI_LABEL_TASKS:
        return label_matrix(table.label_values, label_names)[table.array("labels")]
    codes = np.array([resolve_label(value, label_names) for value in table.label_values], dtype=np.int64)
    return codes[table.array("labels")]
