"""Rows of text -> a table for a terminal, with Chinese characters of two columns."""

import unicodedata
from collections.abc import Iterable

from .errors import shorten

MAX_LABEL = 40  # columns of a terminal


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def short_label(label: str, longest: int = MAX_LABEL) -> str:
    """Return a label that fits into `longest` columns; control characters become escapes."""
    shown = shorten(label, longest)
    if columns_of(shown) <= longest:
        return shown
    return next(f"{shown[:end]}…" for end in range(len(shown), -1, -1) if columns_of(shown[:end]) < longest)


def padded(text: str, columns: int, at_right: bool = False) -> str:
    """Return a text with spaces, so that it takes so many columns."""
    spaces = " " * (columns - columns_of(text))
    return spaces + text if at_right else text + spaces


def text_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return lines of even width: the first cell of each row at the left, the others at the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(map(columns_of, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            padded(cell, width, at > 0) for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
