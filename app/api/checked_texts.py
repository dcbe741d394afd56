"""What a caller gives as texts -> rows, after checks that name the text by its index."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..data.readers import ReadOptions
from ..data.rows import Row, text_rows
from ..errors import InputError, excerpt

RULE = "texts must be a list of strings, or of pairs of strings"


def rows_of(texts: Iterable, remove_spaces: bool = False) -> list[Row]:
    """Return the rows of texts (a list, array, Series or column), or of pairs, also as two columns. Raises
    InputError, naming the index, for an empty text or no string, and where only some are pairs."""
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


def _listed(texts: Any) -> list:
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
