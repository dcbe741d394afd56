"""The labels that a program gives, in lists, arrays or columns, and the labels that it gets back."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.label_cells import LARGEST_NUMBER, label_text
from ..data.labels import label_ids
from ..errors import InputError, excerpt, shorten
from .texts import TextColumns, check_ordered, column_names, is_missing, items_of

Label = str | int | float | bool
LABEL_LISTS = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class Labels:
    """The labels of rows as a program gave them.

    `rows` has a label for each row; where a row may have several (`has_several`), a list of labels. `classes`
    are all labels, sorted; the columns of an indicator matrix (`is_matrix`) keep their order.
    """

    rows: list[Any]
    classes: list[Label]
    has_several: bool = False
    is_matrix: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the classes in the training."""
        return [name_of(label) for label in self.classes]

    def names_of_rows(self) -> list[Any]:
        """Return the name of the label of each row, or the list of the names of its labels."""
        if not self.has_several:
            return [name_of(label) for label in self.rows]
        names = []
        for labels in self.rows:
            names.append([name_of(label) for label in labels])
        return names


def read_labels(values: Any) -> Labels:
    """Return the labels of rows: a list, an array or a column with one label a row; for several labels a row
    an indicator matrix of 0 and 1 (an array, sparse, or a data frame, whose columns name the labels), or a
    list of lists of labels.

    Raises InputError, with the index of the row, for labels that are missing or of different types, and for
    numbers that are no classes.
    """
    check_ordered(values, "labels")
    if hasattr(values, "toarray"):
        values = values.toarray()
    values = as_column(values)
    columns = column_names(values)
    is_array = columns is not None or getattr(values, "ndim", 1) > 1
    rows = list(items_of(values, TextColumns()))
    if is_array or are_indicators(rows):
        return labels_of_matrix(rows, columns)
    if any(isinstance(row, LABEL_LISTS) for row in rows):
        return labels_of_lists(rows)
    labels = labels_of(rows)
    return Labels(labels, sorted(set(labels)))


def as_column(values: Any) -> Any:
    """Return the only column of a data frame or a matrix as an array, with the warning of scikit-learn;
    anything else as it is."""
    names = column_names(values)
    shape = getattr(values, "shape", ())
    has_one_column = len(shape) == 2 and shape[1] == 1
    if names is None and not has_one_column:
        return values
    if names is not None and len(names) != 1:
        return values
    from sklearn.exceptions import DataConversionWarning

    message = "A column-vector y was passed when a 1d array was expected. It is used as one column of labels."
    warnings.warn(message, DataConversionWarning, stacklevel=4)
    return [row[0] for row in items_of(values, TextColumns())]


def are_indicators(rows: list) -> bool:
    """Return whether lists are the rows of an indicator matrix: two or more numbers 0 and 1, always as
    many."""
    widths = set()
    for row in rows:
        if not isinstance(row, (list, tuple)) or not all(is_indicator(value) for value in row):
            return False
        widths.add(len(row))
    return len(widths) == 1 and max(widths) > 1


def is_indicator(value: Any) -> bool:
    is_number = isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))
    return is_number and value in (0, 1)


def labels_of_matrix(rows: list, columns: list | None) -> Labels:
    """Return the labels of an indicator matrix, whose columns are called `columns`, None: 0, 1, 2, ..."""
    num_columns = len(rows[0]) if rows else 0
    classes = list(range(num_columns))
    if columns is not None:
        classes = labels_of(columns)
    label_lists = []
    for index, row in enumerate(rows):
        for label, value in zip(classes, row, strict=True):
            if not is_indicator(value):
                raise InputError(
                    f"labels[{index}] must have 0 or 1 for each label, found {excerpt(value)} for "
                    f"{excerpt(label)}"
                )
        label_lists.append([label for label, value in zip(classes, row, strict=True) if value])
    return Labels(label_lists, classes, has_several=True, is_matrix=True)


def check_each_has_rows(labels: Labels) -> None:
    """Raise InputError for a label that no row has: a column of an indicator matrix that is 0 in all rows."""
    present = set()
    for row in labels.rows:
        present.update(row)
    for label in labels.classes:
        if label not in present:
            raise InputError(f"each label must have a row, found only 0 for {excerpt(label)}; drop it")


def labels_of_lists(rows: list) -> Labels:
    """Return the labels of lists of labels, one list for each row."""
    all_labels: list[Any] = []
    ends = [0]
    for index, row in enumerate(rows):
        if not isinstance(row, LABEL_LISTS):
            raise InputError(
                f"labels[{index}] must be a list of labels as in other rows, found {excerpt(row)}"
            )
        all_labels += row
        ends.append(len(all_labels))
    places = []
    for index, row in enumerate(rows):
        places += [f"labels[{index}]"] * len(row)
    labels = labels_of(all_labels, places)
    label_lists = [labels[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]
    return Labels(label_lists, sorted(set(labels)), has_several=True)


def labels_of(values: list, places: list[str] | None = None) -> list[Label]:
    """Return labels as values of Python; `places` says where each is, for messages. Raises InputError for
    labels that are not all strings, all integers, all floats or all truth values: 1 and true would be the
    same label."""
    labels = []
    first_places: dict[type, str] = {}
    for index, value in enumerate(values):
        place = places[index] if places else f"labels[{index}]"
        label = label_of(value, place)
        labels.append(label)
        first_places.setdefault(type(label), f"{label!r} at {place}")
    if len(first_places) > 1:
        both = " and ".join(first_places.values())
        raise InputError(f"labels must be of one type, found both: {both}")
    return labels


def label_of(value: Any, place: str) -> Label:
    """Return a label as a value of Python. Raises InputError for anything else than a string, a truth value
    or a whole number."""
    if hasattr(value, "as_py"):
        # A value of Arrow
        value = value.as_py()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if is_missing(value):
        raise InputError(f"{place} is missing, found {excerpt(value)}; drop such rows, or label them")
    if isinstance(value, (float, np.floating)):
        if float(value).is_integer():
            return float(value)
        raise InputError(
            f"{place} must be a class, found the number {excerpt(value)}; TextRegressor is for numbers"
        )
    raise InputError(f"{place} must be a string or an integer, found {excerpt(value)}")


def name_of(label: Label) -> str:
    """Return the name of a label in the training: 1.0 is 1 there, as in files."""
    if isinstance(label, float):
        return str(int(label))
    return str(label)


def numbers_of(values: Any) -> list[float]:
    """Return the numbers of rows. Raises InputError, with the index of the row, for one that is missing or no
    number, and where all are the same."""
    check_ordered(values, "y")
    numbers = []
    for index, value in enumerate(items_of(as_column(values), TextColumns())):
        if hasattr(value, "as_py"):
            value = value.as_py()
        if is_missing(value):
            raise InputError(f"y[{index}] is missing, found {excerpt(value)}; drop such rows")
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = np.inf
        if isinstance(value, (str, bytes)) or not abs(number) <= LARGEST_NUMBER:
            raise InputError(f"y[{index}] must be a number up to {LARGEST_NUMBER:g}, found {excerpt(value)}")
        numbers.append(number)
    if len(set(numbers)) == 1:
        raise InputError(f"the numbers of y must differ, found {numbers[0]:g} in all rows")
    return numbers


def check_names(names: list[str]) -> None:
    """Raise InputError for labels, all different, that the training could not tell apart, or could not read
    again, and for fewer than two."""
    ids = label_ids(tuple(names), accept_ids=False)
    for label_id, name in enumerate(names):
        if name != name.strip() or not name:
            raise InputError(
                f"labels must be names without white space around them, not empty, found '{shorten(name)}'"
            )
        try:
            text = label_text(name)
        except ValueError as error:
            raise InputError(f"the label {excerpt(name)} cannot be used: {error}") from error
        if not text or ids.get(text) != label_id:
            raise InputError(
                f"the label {excerpt(name)} is read as {excerpt(text)}, as in a file (without __label__ and "
                ".0), so it would be another label; rename it"
            )
    if len(names) < 2:
        raise InputError(f"at least two different labels are needed, found {names}")


def label_array(labels: Sequence[Label]) -> np.ndarray:
    """Return labels of one type as an array, (num_labels,), that gives each of them back as it is: of objects
    where NumPy has no type for them, as for strings that end with zero characters and very large integers."""
    if not labels:
        return np.empty(0, dtype=str)
    array = np.array(labels)
    back = array.tolist()
    if back != list(labels) or type(back[0]) is not type(labels[0]):
        array = np.array(labels, dtype=object)
    return array


def list_array(label_lists: Iterable[list]) -> np.ndarray:
    """Return lists of labels as an array of objects, (num_rows,)."""
    rows = list(label_lists)
    # np.array would make a matrix of lists of the same length
    return np.fromiter(rows, object, len(rows))


def indicators(label_lists: Iterable[Iterable], columns: dict[Any, int]) -> np.ndarray:
    """Return the matrix (num_rows, num_columns) int64 of 0 and 1 of lists of labels; `columns` has the column
    of each label."""
    rows = list(label_lists)
    matrix = np.zeros((len(rows), len(columns)), np.int64)
    for index, labels in enumerate(rows):
        for label in labels:
            matrix[index, columns[label]] = 1
    return matrix
