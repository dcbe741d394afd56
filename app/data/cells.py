"""The value of one cell of a file -> clean text, or the text of one label."""

import unicodedata
from typing import Any

from ..errors import excerpt, shorten
from ..words import _
from .headers import SETTING
from .readers.excel import EMPTY, NotText
from .text_files import check_characters

# Unicode categories: control and format characters, separators
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}


class EmptyText(ValueError):
    """A row without a text."""


def clean_text(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem."""
    if value is None or value is EMPTY:
        shown_value = "null" if value is None else EMPTY.found
        raise EmptyText(
            _("the {what} is empty, found {value}; fill it in or remove the row").format(
                what=_(what), value=shown_value
            )
        )
    if not isinstance(value, str):
        raise ValueError(
            _("the {what} must be a string, found {value}; fix the row or set --data.{setting}").format(
                what=_(what), value=shown(value), setting=SETTING[what]
            )
        )
    text = "".join(value.split()) if remove_spaces else value.strip()
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        # An empty label is a wrong label
        problem = _("the {what} is empty; fill it in or remove the row").format(what=_(what))
        raise ValueError(problem) if what == "label" else EmptyText(problem)
    check_characters(text, what)
    return text


def shown(value: Any) -> str:
    """Return a value for a message."""
    return value.found if isinstance(value, NotText) else excerpt(value)


def label_text(value: Any) -> str:
    """Return one label as a string; raises ValueError with the problem."""
    # Integers come as floats from a column with missing values
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(
            f"the label must be a string or an integer, found {shown(value)}; fix the row or set "
            "--data.label_column"
        )
    return clean_text(str(value), False, "label")


def string_of(value: Any, name: str) -> str:
    """Return a cell of the column `name` of a file of fixes as text; raises ValueError with the problem."""
    if value is None:
        return ""
    is_whole = isinstance(value, float) and value.is_integer()
    if isinstance(value, (bool, float, dict, list, NotText)) and not is_whole:
        raise ValueError(f"{name} must be a string or an integer, found {shorten(str(value))}; fix the row")
    text = str(int(value)) if is_whole else str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has bytes that are not in the encoding; set --data.encoding (gb18030 for most older "
            "Chinese files), or save the file in UTF-8"
        ) from error
    return text
