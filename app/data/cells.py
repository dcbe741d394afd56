"""The value of one cell of a file -> clean text, or the text of one label."""

import ast
import json
import re
import unicodedata
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from typing import Any

from ..errors import excerpt
from ..words import _
from .columns import SETTING
from .files import check_characters

# Unicode categories: control and format characters, separators
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}


class EmptyText(ValueError):
    """A row without a text."""


def shown(value: Any) -> str:
    """Return a value for a message."""
    if value is None:
        return "null (an empty cell; of merged cells, only the first has the value)"
    return f"a date or time ({value})" if isinstance(value, (date, time)) else excerpt(value)


def clean_text(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem."""
    if not isinstance(value, (str, type(None))):
        said = _("the {what} must be a string, found {value}; fix the row or set --data.{setting}")
        raise ValueError(said.format(what=_(what), value=shown(value), setting=SETTING[what]))
    text = ("".join(value.split()) if remove_spaces else value.strip()) if value else ""
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        said = _("the {what} is empty, found {value}; fill it in or remove the row")
        problem = said.format(what=_(what), value=shown(value))
        # An empty label is a wrong label
        raise ValueError(problem) if what == "label" else EmptyText(problem)
    check_characters(text, what)
    return text


def clean_texts(values: list, remove_spaces: bool, what: str) -> tuple[list, dict[int, ValueError]]:
    """Return what `clean_text` does of each value, and what it raises, by the positions of these values."""
    texts = [value.strip() if type(value) is str else None for value in values]
    if remove_spaces:
        texts = [text and "".join(text.split()) for text in texts]
    # Letters, digits and Chinese characters can be seen; what begins otherwise is looked at alone
    odd = [at for at, text in enumerate(texts) if not (text and text[0].isalnum())]
    try:
        "".join(filter(None, texts)).encode()
    except UnicodeEncodeError:
        odd = range(len(values))
    problems = {}
    for at in odd:
        try:
            texts[at] = clean_text(values[at], remove_spaces, what)
        except ValueError as error:
            problems[at] = error
    return texts, problems


def value_of(cell: Any) -> Any:
    """Return the list or object that is written into a cell of a table, as JSON or as Python writes it, else
    the cell. Of an object with nothing but `choices`, as Label Studio writes several, these."""
    value, text = cell, cell.strip() if isinstance(cell, str) else ""
    if text.startswith(("[", "{")):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            # NumPy writes no commas
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                value = ast.literal_eval(re.sub(r"(['\"])\s+(?=['\"])", r"\1, ", text))
    return value["choices"] if isinstance(value, dict) and list(value) == ["choices"] else value


def label_text(value: Any) -> str:
    """Return one label as a string, as JSON and fastText mean it: true, 1.0 as 1, without __label__; raises
    ValueError with the problem."""
    found = value
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    elif isinstance(value, (date, time)):
        value = str(value).removesuffix(" 00:00:00")
    elif isinstance(value, int) or (isinstance(value, (float, Decimal)) and value % 1 == 0):
        # Integers come as floats from a column with missing values, and as decimals from databases
        value = str(int(value))
    if not isinstance(value, str):
        remedy = "fix the row or set --data.label_column"
        raise ValueError(f"the label must be a string or an integer, found {shown(found)}; {remedy}")
    return re.sub(r"^(-?\d{1,18})\.0$", r"\1", clean_text(value, False, "label").removeprefix("__label__"))
