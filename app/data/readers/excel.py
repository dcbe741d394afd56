"""The one sheet with values of an Excel file (.xlsx) -> its rows, read one at a time by openpyxl."""

import os
import warnings
import zipfile
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config.file_formats import FORMATS
from ...errors import InputError, listed, shorten
from . import FileStart, Reader

# Times its size in the file, beyond which XML is not unpacked: texts shrink to a tenth, repeated ones to a
# hundredth
EXPANDED = 200
# Bytes
ALWAYS_UNPACKED = 100 << 20


@dataclass(frozen=True)
class NotText:
    """A cell that holds neither text nor a number; `found` says what, for a message, and `shown` is what a
    person sees. `value` is a date or time itself."""

    found: str
    shown: str = ""
    value: Any = None

    def __str__(self) -> str:
        return self.shown


EMPTY = NotText("an empty cell (of merged cells, only the first has the value)")


class ExcelReader(Reader):
    """The rows of the only sheet with values."""

    @classmethod
    def recognises(cls, start: FileStart) -> bool:
        """Return whether a file is a ZIP archive with a workbook in it."""
        return start.content.startswith(FORMATS["xlsx"].magic) and _is_workbook(start.path)

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, list]]:
        """Yield number and cells of the rows that are not empty, each as wide as the first one.

        Numbers are those of the sheet. A cell is a string, a number, a truth value or `NotText`. Raises
        InputError unless openpyxl can read the file, and it has values in one sheet only.
        """
        from openpyxl import load_workbook

        try:
            _check_size(self.path)
            # Given a path, openpyxl wants its own endings
            with self.path.open("rb") as file:
                # Of what is not read: styles, validation, pictures
                with warnings.catch_warnings(action="ignore"):
                    book = load_workbook(file, read_only=True)
                with closing(book):
                    yield from _rows(_only_sheet(self.path, book.worksheets))
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - openpyxl raises whatever a damaged file leads to
            message = shorten(str(error) or type(error).__name__, 200)
            raise InputError(
                f"{self.path}: not a readable Excel file: {message}; open it in Excel and save it again as "
                ".xlsx without a password, or as CSV (UTF-8)"
            ) from error


def _is_workbook(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            return any(name.startswith("xl/") for name in file.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def _check_size(path: Path) -> None:
    """Raise ValueError for a file of a few bytes that would fill the memory."""
    with zipfile.ZipFile(path) as file:
        size = sum(entry.file_size for entry in file.infolist())
    if size > ALWAYS_UNPACKED + EXPANDED * os.path.getsize(path):
        raise ValueError(f"it would take {size:,} bytes when unpacked")


def _only_sheet(path: Path, sheets: list) -> Any:
    for sheet in sheets:
        # Some writers give a wrong size
        sheet.reset_dimensions()
    filled = [sheet for sheet in sheets if any(True for _ in _rows(sheet))]
    if not filled:
        raise InputError(f"{path}: there are no rows, its {len(sheets)} sheet(s) are empty")
    if len(filled) > 1:
        names = listed(sheet.title for sheet in filled)
        raise InputError(
            f"{path}: one sheet with values is needed, found {names}; save the one to read as a separate file"
        )
    return filled[0]


def _rows(sheet: Any) -> Iterator[tuple[int, list]]:
    width = None
    for number, row in enumerate(sheet.iter_rows(), 1):
        cells = [_value(cell) for cell in row]
        while cells and cells[-1] is EMPTY:
            cells.pop()
        if cells:
            width = width or len(cells)
            yield number, (cells + [EMPTY] * (width - len(cells)))[:width]


def _value(cell: Any) -> Any:
    from openpyxl.utils.escape import unescape

    value, kind = cell.value, cell.data_type
    if value is None:
        return EMPTY
    if kind == "s":
        return unescape(value) if value.strip() else EMPTY
    if kind in ("n", "b"):
        return value
    text = shorten(str(value))
    names = {
        "f": ("a formula", "; copy the column and paste it as values"),
        "d": ("a date or time", ""),
        "e": ("an error", ""),
    }
    what, remedy = names.get(kind, ("a value that is no text", ""))
    return NotText(f"{what} ({text}{remedy})", text, value if kind == "d" else None)
