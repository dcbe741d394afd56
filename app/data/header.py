"""Whether the first record of a table is a header.

The settings decide, then usual names of columns, then the values below. tests/data/test_column_rules.py has
these rules as a table of cases.
"""

from __future__ import annotations

from ..errors import InputError, listed
from .column_values import are_labels, are_numbers, as_list, cell_text
from .read import ReadOptions
from .share_columns import probability_columns_in
from .usual_names import LABEL_NAMES, OTHER_LABEL_NAMES, TEXT_NAMES

LONGEST_NAME = 20  # characters of a column's name in a header that has no usual name
ROWS_BELOW = 5  # rows below the first one that show whether it is a header


def is_header(where: str, first: list, below: list, options: ReadOptions, need_label: bool) -> bool:
    """Return whether the first record of a table is a header; `below` are the records after it. Raises
    InputError for a record that may be a header or a row."""
    if options.header is not None:
        return options.header
    if _settings_name_a_column(options):
        return True
    cells = list(map(cell_text, first))
    lower_cells = set(map(str.lower, cells))
    has_text_name = not lower_cells.isdisjoint(TEXT_NAMES)
    has_label_name = not lower_cells.isdisjoint((*LABEL_NAMES, *OTHER_LABEL_NAMES))
    if options.votes in cells or probability_columns_in(cells, options.label_hierarchy):
        has_label_name = True
    if not need_label or (has_text_name and has_label_name):
        # Without labels, the header may have only the name of the text column
        return has_text_name
    columns = _columns_below(below, len(cells))
    has_usual_name = has_text_name or has_label_name
    a_cell_comes_again = False
    for cell, column in zip(cells, columns, strict=False):
        if cell in column:
            a_cell_comes_again = True
            if are_labels(column):
                # A usual name such as 情感 may be a label
                return False
    could_be_names = all(map(_could_be_name, cells))
    if could_be_names and any(map(are_numbers, columns)):
        return True
    if could_be_names and columns and has_usual_name and not a_cell_comes_again:
        return True
    may_stand_above_labels = could_be_names and any(map(are_labels, columns))
    if not has_usual_name and not may_stand_above_labels:
        return False
    if options.train_has_no_header:
        return False
    raise InputError(
        f"{where}: cannot tell whether this is a header: {listed(cells)}; set --data.header true or false"
    )


def _could_be_name(cell: str) -> bool:
    return len(cell) <= LONGEST_NAME and not are_numbers([cell])


def _settings_name_a_column(options: ReadOptions) -> bool:
    columns = [options.text_pair_column, options.label_column]
    columns += as_list(options.text_column)
    columns += as_list(options.label_columns)
    return str in map(type, columns)


def _columns_below(below: list, width: int) -> list[list[str]]:
    """Return the columns of the rows below the first one as text; none where there are too few rows."""
    rows = [row for row in below if isinstance(row, list) and len(row) == width]
    if len(rows) < ROWS_BELOW:
        return []
    columns = []
    for values in zip(*rows, strict=True):
        columns.append(list(map(cell_text, values)))
    return columns
