"""What is between the fields of a line, by the first lines of a file."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter, methodcaller

from .text_files import is_enclosed

# A separator has no letter, digit or Chinese character in it, and no quote
SEPARATOR = re.compile(r"_?[^\w\s\"'“”‘’《》（）()]+_?|[ ]+")
MIN_LINES = 10  # lines that show a separator that no format has
LONGEST_LABEL = 40  # characters of a label, where nothing says which column has the labels
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
    quoting = csv.QUOTE_NONE
    if is_quoted:
        quoting = csv.QUOTE_MINIMAL
    widths = set()
    with suppress(csv.Error):
        for record in csv.reader(lines, delimiter=delimiter, quoting=quoting):
            widths.add(len(record))
    if len(widths) != 1:
        return 0
    return widths.pop()


def shown_separator(lines: list[str], delimiter: str, is_quoted: bool) -> str | None:
    """Return what the lines have between a label and the rest, such as `_!_`, `|,|` or a space, where it is
    not the `delimiter` that makes columns of them; else None. Separators of several characters come first,
    then those with the fewest and shortest labels."""
    if len(lines) < MIN_LINES:
        return None
    has_columns = num_fields(lines, delimiter, is_quoted) > 1
    ranks = {}
    for separator in sorted(set(SEPARATOR.findall(lines[-1]))):
        is_other = separator != delimiter
        if has_columns:
            # In a line such as a,-,b the delimiter stands at both ends, and is what separates
            stands_at_an_end = delimiter in (separator[0], separator[-1])
            is_other = delimiter in separator and not stands_at_an_end
        if not is_other or not all(separator in line for line in lines):
            continue
        labels = _fewest_labels(lines, separator)
        if labels:
            num_characters = sum(map(len, labels))
            # The longer one is chosen where two are equal otherwise, such as _!_ and !_
            ranks[separator] = (len(separator) == 1, len(labels), num_characters, -len(separator))
    return min(ranks, key=ranks.get, default=None)


def _fewest_labels(lines: list[str], separator: str) -> set[str]:
    """Return the different labels of the column that has the fewest and shortest of them; none where there is
    no column of labels."""
    rows = list(map(methodcaller("split", separator), lines))
    width = min(map(len, rows))
    candidates = []
    # The last field is one of the columns, also where rows have more or fewer fields
    for column in (*range(width), -1):
        values = list(map(itemgetter(column), rows))
        if _are_labels(values):
            candidates.append(set(values))
    return min(candidates, key=lambda labels: (len(labels), sum(map(len, labels))), default=set())


def _are_labels(values: Sequence[str]) -> bool:
    different = set(map(str.strip, values))
    if "" in different or max(map(len, different)) > LONGEST_LABEL:
        return False
    return come_again(values, different)


def come_again(values: Sequence, different: set[str]) -> bool:
    """Return whether the `different` ones of some values, two or more, come again and again."""
    return 2 <= len(different) <= len(values) / 2


def are_enclosed(lines: list[str], delimiter: str) -> bool:
    """Return whether double quotes enclose fields in a format that does not say so. They do where each line
    but a header has as many enclosed fields, where an enclosed field has doubled quotes or separators in it,
    and where a column that comes again and again has enclosed fields: its labels."""
    try:
        records = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    widths = set(map(len, records))
    if len(widths) != 1:
        return False
    [width] = widths
    rows = list(map(methodcaller("split", delimiter), lines))
    num_whole_rows = 0
    has_doubled = False
    num_enclosed_of_rows = []
    for row in rows:
        if len(row) == width:
            num_whole_rows += 1
        enclosed = list(filter(is_enclosed, row))
        num_enclosed_of_rows.append(len(enclosed))
        for cell in enclosed:
            if '""' in cell[1:-1]:
                has_doubled = True
    # A lone quote would make one field of all the rows up to the next one
    if num_whole_rows > len(records):
        return False
    has_separators = num_whole_rows < len(rows)
    num_in_last_row = num_enclosed_of_rows[-1]
    is_even = num_in_last_row > 0 and set(num_enclosed_of_rows[1:]) == {num_in_last_row}
    return is_even or has_doubled or has_separators or _has_enclosed_labels(rows)


def are_quoted_after_spaces(lines: list[str], delimiter: str) -> bool:
    """Return whether each line but a header has a field with quotes after a space, as in `"a", "b"`. In the
    usual way of reading such quotes are part of the field."""
    rows = lines[1:]
    if len(rows) < MIN_QUOTED_ROWS:
        return False
    quoted_field = re.compile(rf'{re.escape(delimiter)} +"[^"]*"({re.escape(delimiter)}|$)')
    return all(map(quoted_field.search, rows))


def _without_quotes(cell: str) -> str:
    if is_enclosed(cell):
        return cell[1:-1]
    return cell


def _has_enclosed_labels(rows: list[list[str]]) -> bool:
    for column in zip(*rows[1:], strict=False):
        values = list(map(_without_quotes, column))
        if len(values) >= MIN_LINES and _are_labels(values) and any(map(is_enclosed, column)):
            return True
    return False
