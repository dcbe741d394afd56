"""The contract of a form of labels: what reading, splitting and counting ask about the labels of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest
from ..words import _
from .cells import label_text, string_of
from .column_values import label_like
from .folds import folds_of_classes
from .label_cells import separator_in
from .label_names import check_labels_in_train, resolve_label, sort_labels
from .readers import ReadOptions
from .splits import stratified_split


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
        return self.of_texts(table.label_values, names)[table.array("labels")]

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


def _refuse_several(train: Any, task: str) -> None:
    """Raise InputError where labels are several in one, with a separator between them."""
    separator = separator_in(train.label_values)
    if separator is None:
        return
    codes = [code for code, label in enumerate(train.label_values) if separator in label]
    rows = np.flatnonzero(np.isin(train.array("labels"), codes))
    first = train.label_values[train.array("labels")[rows[0]]]
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
