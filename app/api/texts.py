"""The texts that a program gives, in lists, arrays, columns or data frames -> rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..data.bad_row import BadRow
from ..data.cells import join_texts
from ..data.rows import Row
from ..errors import InputError, excerpt, listed
from ..prediction.sources import text_rows
from ..prediction.trained_model import TextColumns

FOR_FILES = "; fix the row"  # with this begins what a message says of files
RULE = "texts must be a list of strings, or of pairs of strings"


def rows_of(
    texts: Iterable,
    columns: TextColumns | None = None,
    remove_spaces: bool = False,
    keep_bad: bool = False,
) -> list[Row | BadRow]:
    """Return the rows of texts or pairs of texts.

    `texts` are a list, an array or a column of strings or pairs, a data frame (pandas, Polars) or an Arrow
    table, or a list of its rows, as dictionaries or lists. Where they have the `columns` of a model, these
    are read, else all of them: one is the text, two are a pair. Raises InputError, naming the index, for an
    empty text or no string, unless `keep_bad`, and where only some are pairs.
    """
    columns = columns or TextColumns()
    check_ordered(texts, "texts")
    if isinstance(texts, (str, bytes)) or getattr(texts, "ndim", 1) == 0:
        raise InputError(f"{RULE}, found one string: {excerpt(str(texts))}; write [text]")
    values = []
    for index, item in enumerate(items_of(texts, columns)):
        values.append(_texts_of(item, columns, f"texts[{index}]"))
    rows = list(text_rows(values, remove_spaces))
    # The index of the last pair, and of the last single text
    indices: dict[bool, int] = {}
    for index, row in enumerate(rows):
        if isinstance(row, Row):
            indices[row.pair is not None] = index
        elif not keep_bad:
            # The rest of the message is the remedy for a file
            problem = str(row.problem).partition(FOR_FILES)[0]
            raise InputError(f"texts[{index}]: {problem}")
    if len(indices) > 1:
        raise InputError(
            f"{RULE}, found both: texts[{indices[True]}] is a pair, texts[{indices[False]}] is not"
        )
    return rows


def items_of(texts: Any, columns: TextColumns) -> Iterable:
    """Return the values of a list, an array or a column, or the rows of a data frame, each as it is."""
    names = column_names(texts)
    if names is not None:
        return frame_rows(texts, names, columns)
    if isinstance(texts, np.ndarray):
        return texts.tolist()
    # Columns of Arrow
    if hasattr(texts, "to_pylist"):
        return texts.to_pylist()
    # Columns of pandas and Polars
    if hasattr(texts, "to_list"):
        return texts.to_list()
    if hasattr(texts, "to_numpy"):
        return texts.to_numpy(dtype=object).tolist()
    return texts


def column_names(texts: Any) -> list | None:
    """Return the names of the columns of an Arrow table or a data frame, None for anything else."""
    # Those of an Arrow table are called column_names, and its `columns` are their values
    for attribute in ("column_names", "columns"):
        names = getattr(texts, attribute, None)
        if names is not None:
            return list(names)
    return None


def frame_rows(frame: Any, names: list, columns: TextColumns) -> list:
    """Return the rows of a data frame or an Arrow table with columns of these names: of the model's columns,
    if all are there, else of all columns. Raises InputError where a model reads several texts as one, and one
    of its columns is missing."""
    missing = [name for name in columns.names if name not in names]
    if missing and len(columns.texts) > 1:
        raise InputError(f"the model reads the columns {listed(columns.names)}, {missing[0]} is not there")
    if columns.names and not missing:
        # Arrow and Polars call it select
        if hasattr(frame, "select"):
            frame = frame.select(columns.names)
        else:
            frame = frame[columns.names]
    if hasattr(frame, "to_pylist"):
        return list(zip(*(column.to_pylist() for column in frame.columns), strict=True))
    # Polars
    if hasattr(frame, "rows"):
        return frame.rows()
    return frame.to_numpy(dtype=object).tolist()


def _texts_of(item: Any, columns: TextColumns, place: str) -> Any:
    """Return the text, or the tuple of a pair, of one item; None for an empty list. What is no text stays as
    it is. Raises InputError for more texts than a pair has, naming the `place`."""
    if hasattr(item, "as_py"):
        # A value of Arrow
        item = item.as_py()
    names = columns.names
    if isinstance(item, dict) and names and item.keys() >= set(names):
        item = [item[name] for name in names]
    if is_missing(item):
        return None
    if not isinstance(item, (list, tuple)):
        return item
    texts = [None if is_missing(text) else text for text in item]
    num_texts = len(columns.texts)
    if num_texts > 1 and len(texts) == len(names):
        text = join_texts(texts[:num_texts])
        return text if columns.pair is None else (text, texts[-1])
    if len(texts) > 2:
        raise InputError(f"{RULE}, found {excerpt(item)} at {place}; choose columns of it")
    return tuple(texts) or None


def check_ordered(values: Any, name: str) -> None:
    """Raise InputError for what is no list, and for a set, whose order is another one in each process."""
    has_items = hasattr(values, "__iter__") or hasattr(values, "__getitem__")
    if isinstance(values, dict) or not has_items:
        raise InputError(f"{name} must be a list, found {excerpt(values)}")
    if isinstance(values, (set, frozenset)):
        raise InputError(f"{name} must have an order, found a {type(values).__name__}; give a list")


def is_missing(value: Any) -> bool:
    """Return whether a value stands for nothing: None, NaN, or NaT and NA of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    # Nothing else differs from itself
    return np.isscalar(value) and value != value  # noqa: PLR0124
