"""Rows of text -> a table for a terminal, with Chinese characters of two columns."""

import unicodedata
from collections.abc import Iterable

from .errors import shorten

MAX_LABEL = 40  # columns of a terminal


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    num_columns = 0
    for character in text:
        num_columns += 1
        if unicodedata.east_asian_width(character) in "WF":
            num_columns += 1
        if unicodedata.combining(character) > 0:
            num_columns -= 1
    return num_columns


def short_label(label: str, longest: int = MAX_LABEL) -> str:
    """Return a label that fits into `longest` columns; control characters become escapes."""
    label = shorten(label, longest)
    if columns_of(label) <= longest:
        return label
    end = len(label)
    while end > 0 and columns_of(label[:end]) >= longest:
        end -= 1
    return f"{label[:end]}…"


def padded(text: str, columns: int, at_right: bool = False) -> str:
    """Return a text with spaces after it, so that it takes so many columns; with `at_right` before it."""
    spaces = " " * (columns - columns_of(text))
    if at_right:
        return spaces + text
    return text + spaces


def text_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return lines of even width: the first cell of each row at the left, the others at the right."""
    table = [list(header)]
    for row in rows:
        table.append(list(row))
    widths = []
    for column in zip(*table, strict=True):
        widths.append(max(columns_of(cell) for cell in column))
    lines = []
    for row in table:
        cells = [padded(row[0], widths[0])]
        for cell, width in zip(row[1:], widths[1:], strict=True):
            cells.append(padded(cell, width, at_right=True))
        lines.append("  ".join(cells))
    return "\n".join(lines)
