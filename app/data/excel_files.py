"""Records of workbooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import InputError, listed
from .column_files import readable


def excel_records(path: Path) -> Iterator[tuple[int, list]]:
    """Yield the rows of the only sheet with values, all of the same width. Raises InputError where there are
    more sheets, or none."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(f"{path}: Excel files need a package: pip install python-calamine") from error
    sheets: dict[str, list[tuple[int, list]]] = {}
    # Given a path, calamine accepts its own endings of names only
    with readable(path), path.open("rb") as file, CalamineWorkbook.from_filelike(file) as book:
        for name in book.sheet_names:
            rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
            for number, cells in enumerate(rows, 1):
                row = list(map(_value, cells))
                if any(value is not None for value in row):
                    sheets.setdefault(name, []).append((number, row))
    if len(sheets) != 1:
        names = listed(sheets) or "none"
        remedy = "save the one to read as a separate file"
        raise InputError(f"{path}: one sheet with values is needed, found {names}; {remedy}")
    [rows] = sheets.values()
    width = max(map(_width, rows))
    for number, row in rows:
        yield number, row[:width]


def _value(cell: Any) -> Any:
    if isinstance(cell, float) and cell.is_integer():
        # All numbers come as floats
        return int(cell)
    if isinstance(cell, str) and not cell.strip():
        return None
    return cell


def _width(numbered_row: tuple[int, list]) -> int:
    """Return the number of columns up to the last cell with a value."""
    _number, row = numbered_row
    width = len(row)
    while row[width - 1] is None:
        width -= 1
    return width
