"""What a caller gives as texts -> rows, after checks that name the text by its index."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..data.read import ReadOptions
from ..data.rows import Row, join_texts, text_rows
from ..errors import InputError, excerpt

RULE = "texts must be a list of strings, or of pairs of strings"


def rows_of(texts: Iterable, remove_spaces: bool = False, columns: Sequence[str] | None = None) -> list[Row]:
    """Return the rows of texts (a list, array, Series or column), or of pairs, also as two columns; of a
    model of several `columns`, see `joined_columns`. Raises InputError, naming the index, for an empty text
    or no string, and where only some are pairs."""
    texts = joined_columns(texts, columns) if columns else texts
    checked = [_text(value, index) for index, value in enumerate(_listed(texts))]
    rows = []
    for index, row in enumerate(text_rows(checked, ReadOptions(remove_spaces=remove_spaces))):
        if not isinstance(row, Row):
            raise InputError(f"texts[{index}]: {row.problem}")
        if (row.pair is None) != (rows[0].pair is None if rows else row.pair is None):
            raise InputError(
                f"{RULE}, found both: texts[{index}] is {'one string' if row.pair is None else 'a pair'}, "
                "texts[0] is not"
            )
        rows.append(row)
    return rows


def joined_columns(texts: Iterable, columns: Sequence[str]) -> list:
    """Return the texts of several columns as one: of the rows of a data frame, of dictionaries with the names
    of the columns, or of lists in their order. Anything else stays as it is."""
    check_ordered(texts, "texts")
    if hasattr(texts, "columns"):
        texts = texts[list(columns)].to_numpy(dtype=object).tolist()
    joined = []
    for value in texts:
        if isinstance(value, dict) and value.keys() >= set(columns):
            value = [value[name] for name in columns]
        is_row = isinstance(value, (list, tuple)) and len(value) == len(columns)
        joined.append(join_texts(value) if is_row else value)
    return joined


def check_ordered(values: Any, what: str) -> None:
    """Raise InputError for what is no list, and for a set, whose order is another one in each process."""
    if isinstance(values, dict) or not (hasattr(values, "__iter__") or hasattr(values, "__getitem__")):
        raise InputError(f"{what} must be a list, found {excerpt(values)}")
    if isinstance(values, (set, frozenset)):
        raise InputError(f"{what} must have an order, found a {type(values).__name__}; give a list")


def _listed(texts: Any) -> list:
    check_ordered(texts, "texts")
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{RULE}, found one string: {excerpt(str(texts))}; write [text]")
    # Pandas
    if hasattr(texts, "to_numpy"):
        texts = texts.to_numpy(dtype=object)
    if isinstance(texts, np.ndarray):
        if texts.ndim == 0 or texts.ndim > 2 or (texts.ndim == 2 and texts.shape[1] > 2):
            raise InputError(
                f"{RULE}, found an array of shape {texts.shape}; choose the column or columns of the text"
            )
        texts = texts[:, 0] if texts.ndim == 2 and texts.shape[1] == 1 else texts
        texts = texts.tolist()
    return list(texts)


def _text(value: Any, index: int) -> str | tuple[str, str]:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise InputError(f"{RULE}, found {excerpt(value)} at texts[{index}]; fill it in, or leave it out")
