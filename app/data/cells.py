"""The cells of rows: their text without white space around it, lists that are written into a cell, and the
text of other values."""

from __future__ import annotations

import ast
import base64
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, time
from typing import Any

from ..errors import excerpt
from .encodings import wrong_character

# Unicode categories: control and format characters, separators
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}
SETTING = {"text": "text_column", "second text": "text_pair_column", "label": "label_column"}

# It stands between the texts of several columns, and a tokenizer gets its own separator there
BETWEEN_TEXTS = "\u241e"
SURROGATES = re.compile("[\ud800-\udfff]")


class EmptyText(ValueError):
    """A row without a text."""


def clean_text(value: Any, remove_spaces: bool, role: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem. `role` says what
    the cell holds: it is a key of `SETTING`."""
    if not isinstance(value, (str, type(None))):
        raise ValueError(
            f"the {role} must be a string, found {excerpt(value)}; fix the row or set --data.{SETTING[role]}"
        )
    text = (value or "").strip()
    if remove_spaces:
        text = "".join(text.split())
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        problem = f"the {role} is empty, found {excerpt(value)}; fill it in or remove the row"
        if role == "label":
            # An empty label is a wrong label
            raise ValueError(problem)
        raise EmptyText(problem)
    problem = wrong_character(text, role)
    if problem:
        raise ValueError(problem)
    return text


def value_of(cell: Any) -> Any:
    """Return the list or object that is written into a cell of a table, as JSON or as Python writes it, else
    the cell. Of an object with nothing but `choices`, as Label Studio writes several, these."""
    value = cell
    if isinstance(cell, str) and cell.strip().startswith(("[", "{", "(")):
        value = _parsed(cell.strip())
        if isinstance(value, tuple):
            value = list(value)
        if not isinstance(value, (list, dict)):
            value = cell
    if isinstance(value, dict) and list(value) == ["choices"]:
        return value["choices"]
    return value


def _parsed(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    # NumPy writes no commas between the strings of an array
    with_commas = re.sub(r"(['\"])\s+(?=['\"])", r"\1, ", text)
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return ast.literal_eval(with_commas)
    return text


def number_as_text(cell: Any) -> Any:
    """Return a number as the text that was typed into a cell, such as 666; any other value as it is."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        return str(cell)
    return cell


def join_texts(cells: Sequence[Any]) -> Any:
    """Return the texts of several columns as one, without those that are empty; what is no text stays."""
    texts = []
    for cell in cells:
        if cell is None:
            continue
        if not isinstance(cell, str):
            return cell
        if cell.strip():
            texts.append(cell.strip())
    return BETWEEN_TEXTS.join(texts)


def as_text(value: Any) -> str:
    """Return a value as text: nothing for None, lists, objects and truth values as in JSON."""
    if isinstance(value, str):
        return value
    # Not a number (NaN) is the one value that differs from itself
    if value is None or value != value:  # noqa: PLR0124
        return ""
    if isinstance(value, (bool, list, dict)):
        return json_text(value)
    if isinstance(value, bytes):
        return as_json(value)
    return str(value)


def json_text(value: Any) -> str:
    """Return a value as JSON in one line. What JSON has no number for, NaN and infinity, is null, also inside
    of lists and objects; what it has no type for is text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=as_json, allow_nan=False)
    except ValueError:
        return json.dumps(_with_finite_numbers(value), ensure_ascii=False, default=as_json)


def _with_finite_numbers(value: Any) -> Any:
    """Return a value with None in place of NaN and infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _with_finite_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_finite_numbers(item) for item in value]
    return value


def as_json(value: Any) -> str:
    """Return what JSON has no type for: dates in ISO form, bytes in base64, all else as Python shows it."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def valid_text(value: Any) -> str:
    """Return a value as text that can be written in UTF-8: U+FFFD stands for what cannot."""
    return SURROGATES.sub("\ufffd", as_text(value))
