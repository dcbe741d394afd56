"""Records of workbooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, listed
from .column_files import readable

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook


@dataclass(frozen=True)
class ChosenSheet:
    """The sheet of a workbook that is read. `others` are the names of those that have values too, where no
    setting has chosen this one."""

    name: str
    others: tuple[str, ...] = ()


def choose_sheet(path: Path, sheet: int | str | None, if_there: bool) -> ChosenSheet:
    """Return the sheet of a workbook that `sheet` means, by its name or its number from 0; without a setting,
    the first one with values that is not hidden. Where there is no such sheet, `if_there` makes that no
    error: then it is as without the setting. Raises InputError where there is none."""
    with _opened(path) as book:
        names = _sheet_names(book)
        name = _name_of(sheet, names)
        if name is not None:
            return ChosenSheet(name)
        if sheet is not None and not if_there:
            raise InputError(
                f"{path}: there is no sheet {sheet!r}, the first one is number 0; set data.sheet to one of "
                f"{_quoted(names)}"
            )
        if len(names) == 1:
            return ChosenSheet(names[0])
        with_values = [name for name in names if _rows_with_values(book, name)]
        if not with_values:
            raise _without_values(path)
        hidden = _hidden_names(book)
        visible = [name for name in with_values if name not in hidden]
        first = (visible or with_values)[0]
        return ChosenSheet(first, others=tuple(name for name in with_values if name != first))


def excel_records(path: Path, sheet: str) -> Iterator[tuple[int, list]]:
    """Yield the rows of a sheet that have values, all of the same width. Raises InputError where there are
    none."""
    with _opened(path) as book:
        rows = _rows_with_values(book, sheet)
    if not rows:
        raise _without_values(path, sheet)
    width = max(map(_width, rows))
    for number, row in rows:
        yield number, row[:width]


@contextmanager
def _opened(path: Path) -> Iterator[CalamineWorkbook]:
    """Open a workbook; raises InputError where it cannot be read."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(f"{path}: Excel files need a package: pip install python-calamine") from error
    # Given a path, calamine accepts its own endings of names only
    with readable(path), path.open("rb") as file, CalamineWorkbook.from_filelike(file) as book:
        yield book


def _sheet_names(book: CalamineWorkbook) -> list[str]:
    """Return the names of the sheets that can have cells, in their order."""
    from python_calamine import SheetTypeEnum

    return [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]


def _hidden_names(book: CalamineWorkbook) -> set[str]:
    from python_calamine import SheetVisibleEnum

    return {sheet.name for sheet in book.sheets_metadata if sheet.visible != SheetVisibleEnum.Visible}


def _name_of(sheet: int | str | None, names: list[str]) -> str | None:
    """Return the name of the sheet that a setting means, None where there is no such sheet."""
    if isinstance(sheet, int) and 0 <= sheet < len(names):
        return names[sheet]
    # A sheet may be called 2026
    if str(sheet) in names:
        return str(sheet)
    return None


def _rows_with_values(book: CalamineWorkbook, sheet: str) -> list[tuple[int, list]]:
    rows = []
    for number, cells in enumerate(book.get_sheet_by_name(sheet).to_python(skip_empty_area=False), 1):
        row = list(map(_value, cells))
        if any(value is not None for value in row):
            rows.append((number, row))
    return rows


def _without_values(path: Path, sheet: str | None = None) -> InputError:
    place = "the workbook" if sheet is None else f"sheet {sheet!r}"
    return InputError(f"{path}: a sheet with values is needed, found none in {place}; fill it in")


def _quoted(names: list[str]) -> str:
    return listed(map(repr, names))


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
