"""Predictions -> an Excel file, where every text is a text cell and none a formula."""

import logging
import math
import re
from collections.abc import Iterable
from datetime import date, datetime, time
from typing import Any, TextIO
from zipfile import ZIP_DEFLATED, ZipFile

from ..errors import InputError
from .input_columns import as_text

logger = logging.getLogger(__name__)
# Of Excel
MAX_CELL, MAX_ROWS, MAX_COLUMNS = 32_767, 1_048_576, 16_384
# Digits of a number in Excel; longer ones, such as ids, are written as text
EXACT = 10**15
# What XML cannot hold is written as _x0001_, so a text that has this already needs an escape too.
ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


def check_excel(num_columns: int = 0) -> None:
    """Raise InputError if openpyxl is not installed, or for more columns than a sheet has."""
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise InputError("Excel files need openpyxl; install it with: pip install openpyxl") from error
    if num_columns > MAX_COLUMNS:
        raise InputError(
            f"an Excel sheet has {MAX_COLUMNS:,} columns, found {num_columns:,}; write JSON Lines"
        )


def write_sheet(file: TextIO, names: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a sheet with column names; raises InputError for too many rows. Says how many texts were cut.
    Numbers, truth values, dates and times keep their type; what Excel has no type for becomes text."""
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.writer.excel import ExcelWriter

    check_excel(len(names))
    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    num_cut = 0

    def cell(value: Any) -> Any:
        nonlocal num_cut
        if value is None or _has_type(value):
            return value
        value = as_text(value)
        escaped = ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", value)
        num_cut += len(escaped) > MAX_CELL
        written = WriteOnlyCell(sheet, escaped[:MAX_CELL])
        # Or a text that begins with = would be a formula
        written.data_type = "s"
        return written

    try:
        sheet.append(list(map(cell, names)))
        for number, row in enumerate(rows, 2):
            if number > MAX_ROWS:
                raise InputError(f"an Excel sheet has {MAX_ROWS:,} rows, and there are more; write CSV")
            sheet.append(list(map(cell, row)))
    except BaseException:
        # Its temporary file; or it complains when it is freed
        sheet.close()
        raise
    archive = ZipFile(file.buffer, "w", ZIP_DEFLATED)
    try:
        ExcelWriter(book, archive).save()
    except BaseException:
        # Without a file it does not write its end when it is freed, which fails on a full disk.
        archive.fp = None
        raise
    if num_cut:
        logger.warning(
            "%d texts are longer than the %d characters of an Excel cell, and were cut there",
            num_cut,
            MAX_CELL,
        )


def _has_type(value: Any) -> bool:
    """Return whether Excel holds a value as it is."""
    if isinstance(value, (datetime, time)):
        return value.tzinfo is None
    if isinstance(value, int):
        return abs(value) < EXACT
    return isinstance(value, date) or (isinstance(value, float) and math.isfinite(value))
