"""The cells of a row: their text without white space around it, and lists that are written into a cell."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from contextlib import suppress
from typing import Any

from ..errors import excerpt
from ..words import N_, _
from .encodings import wrong_character

# Unicode categories: control and format characters, separators
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}
SETTING = {N_("text"): "text_column", N_("second text"): "text_pair_column", N_("label"): "label_column"}


class EmptyText(ValueError):
    """A row without a text."""


def clean_text(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem. `what` is what the
    cell holds: a key of `SETTING`."""
    if not isinstance(value, (str, type(None))):
        said = _("the {what} must be a string, found {value}; fix the row or set --data.{setting}")
        raise ValueError(said.format(what=_(what), value=excerpt(value), setting=SETTING[what]))
    text = (value or "").strip()
    if remove_spaces:
        text = "".join(text.split())
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        said = _("the {what} is empty, found {value}; fill it in or remove the row")
        problem = said.format(what=_(what), value=excerpt(value))
        if what == "label":
            # An empty label is a wrong label
            raise ValueError(problem)
        raise EmptyText(problem)
    problem = wrong_character(text, what)
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
