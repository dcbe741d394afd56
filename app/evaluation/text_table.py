"""Rows of text -> a table for a terminal, with Chinese characters of two columns."""

import unicodedata
from collections.abc import Iterable

from ..errors import shorten

# Columns of a terminal
MAX_LABEL = 40


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    return (
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
    )


def short_label(label: str, longest: int = MAX_LABEL) -> str:
    """Return a label that fits into `longest` columns; control characters become escapes."""
    shown = shorten(label, longest)
    if columns_of(shown) <= longest:
        return shown
    columns = 0
    for index, character in enumerate(shown):
        columns += _columns(character)
        if columns >= longest:
            return f"{shown[:index]}…"
    return shown


def text_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return lines of even width: the first cell of each row at the left, the others at the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(map(columns_of, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        spaces = [" " * (width - columns_of(cell)) for width, cell in zip(widths, row, strict=True)]
        lines.append("  ".join([row[0] + spaces[0], *map("".join, zip(spaces[1:], row[1:], strict=True))]))
    return "\n".join(lines)
