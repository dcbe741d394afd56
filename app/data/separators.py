"""What is between the fields of a line, by the first lines of a file."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from contextlib import suppress

# A separator has no letter, digit or Chinese character in it, and no quote
SEPARATOR = re.compile(r"_?[^\w\s\"'“”‘’《》（）()]+_?|[ ]+")
MIN_LINES = 10  # lines that show a separator that no format has
LONGEST_LABEL = 40  # characters
MIN_QUOTED_ROWS = 3  # rows that show that quotes stand after spaces
EXCEL_SEPARATOR = re.compile("sep=(.)")  # a first line that tells Excel the separator


def excel_separator(lines: list[str]) -> str | None:
    """Return the separator that the first line names, as `sep=,` does for Excel, or None."""
    if not lines:
        return None
    match = EXCEL_SEPARATOR.fullmatch(lines[0].strip())
    if match is None:
        return None
    return match[1]


def num_fields(lines: list[str], delimiter: str, is_quoted: bool) -> int:
    """Return how many fields each of these lines has, 0 where they do not all have the same number."""
    quoting = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
    widths = set()
    with suppress(csv.Error):
        for record in csv.reader(lines, delimiter=delimiter, quoting=quoting):
            widths.add(len(record))
    return widths.pop() if len(widths) == 1 else 0


def shown_separator(lines: list[str], delimiter: str, is_quoted: bool) -> str | None:
    """Return what the lines have between a label and the rest, such as `_!_`, `|,|` or a space, where it is
    not the `delimiter` that makes columns of them; else None. Separators of several characters come first,
    then those with the fewest and shortest labels."""
    if len(lines) < MIN_LINES:
        return None
    has_columns = num_fields(lines, delimiter, is_quoted) > 1
    labels = {}
    for separator in set(SEPARATOR.findall(lines[-1])):
        # In a line such as a,-,b the delimiter stands at both ends, and is what separates
        is_inside = delimiter in separator[1:-1] and delimiter not in (separator[0], separator[-1])
        is_other = is_inside if has_columns else separator != delimiter
        if is_other and all(separator in line for line in lines):
            fewest_and_shortest = _labels(lines, separator)
            if fewest_and_shortest:
                labels[separator] = fewest_and_shortest
    if not labels:
        return None
    return min(labels, key=lambda separator: (len(separator) == 1, labels[separator]))


def _labels(lines: list[str], separator: str) -> tuple[int, int] | None:
    """Return the number and the length of the fields that come again and again, of the column that has the
    fewest of them; None where there is no such column."""
    rows = [line.split(separator) for line in lines]
    width = min(map(len, rows))
    columns = []
    # The last field is one of the columns, also where rows have more or fewer fields
    for column in (*range(width), -1):
        columns.append([row[column] for row in rows])
    sizes = []
    for column in columns:
        if _come_again(column):
            different = set(column)
            sizes.append((len(different), sum(map(len, different))))
    return min(sizes, default=None)


def _come_again(values: Sequence[str]) -> bool:
    different = {value.strip() for value in values}
    are_short = all(0 < len(value) <= LONGEST_LABEL for value in different)
    return are_short and 2 <= len(different) <= len(values) / 2


def are_enclosed(lines: list[str], delimiter: str) -> bool:
    """Return whether double quotes enclose fields in a format that does not say so. They do where each line
    but a header has as many enclosed fields, where an enclosed field has doubled quotes or separators in it,
    and where a column that comes again and again has enclosed fields: its labels."""
    try:
        records = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    rows = [line.split(delimiter) for line in lines]
    widths = {len(record) for record in records}
    if len(widths) != 1:
        return False
    # A lone quote would make one field of all the rows up to the next one
    num_whole_rows = sum(len(row) in widths for row in rows)
    if num_whole_rows > len(records):
        return False
    counts = [sum(map(_is_enclosed, row)) for row in rows]
    cells = [cell for row in rows for cell in row if _is_enclosed(cell)]
    is_even = counts[-1] > 0 and len(set(counts[1:])) == 1
    has_doubled = any('""' in cell[1:-1] for cell in cells)
    has_separators = num_whole_rows < len(rows)
    return is_even or has_doubled or has_separators or _has_enclosed_labels(rows)


def are_quoted_after_spaces(lines: list[str], delimiter: str) -> bool:
    """Return whether each line but a header has a field with quotes after a space, as in `"a", "b"`. In the
    usual way of reading such quotes are part of the field."""
    rows = lines[1:]
    if len(rows) < MIN_QUOTED_ROWS:
        return False
    quoted_field = re.compile(rf'{re.escape(delimiter)} +"[^"]*"({re.escape(delimiter)}|$)')
    return all(quoted_field.search(row) for row in rows)


def _is_enclosed(cell: str) -> bool:
    return len(cell) > 1 and cell[0] == cell[-1] == '"'


def _without_quotes(cell: str) -> str:
    if _is_enclosed(cell):
        return cell[1:-1]
    return cell


def _has_enclosed_labels(rows: list[list[str]]) -> bool:
    for column in zip(*rows[1:], strict=False):
        values = list(map(_without_quotes, column))
        if len(values) >= MIN_LINES and _come_again(values) and any(map(_is_enclosed, column)):
            return True
    return False
