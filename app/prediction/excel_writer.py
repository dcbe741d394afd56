"""Rows with predictions as a workbook of Excel."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from ..data.cells import valid_text
from ..errors import InputError, counted, needed
from .added_columns import AddedColumns, rows_with_predictions
from .predictor import Prediction
from .sources import Source

logger = logging.getLogger(__name__)
# These are limits of Excel
MAX_CELL = 32_767  # characters
MAX_ROWS = 1_048_576
MAX_COLUMNS = 16_384
# Excel keeps 15 digits of a number, so longer ones, such as ids, are written as text
NUM_DIGITS = 15
EXACT = 10**NUM_DIGITS
TOO_LARGE = f"an Excel sheet has {MAX_ROWS:,} rows and {MAX_COLUMNS:,} columns, there are more; write CSV"
# The first type that a value is of decides how it is shown; a datetime is a date too
DATE_FORMATS = {datetime: "yyyy-mm-dd hh:mm:ss", date: "yyyy-mm-dd", time: "hh:mm:ss"}
CUT = -2  # what xlsxwriter returns for a text that is longer than a cell


def check_num_rows(num_rows: int) -> None:
    """Raise InputError for more rows than fit below the names of the columns."""
    if num_rows >= MAX_ROWS:
        raise InputError(TOO_LARGE)


def write_xlsx(file: TextIO, source: Source, added: AddedColumns, predictions: Iterable[Prediction]) -> None:
    """Write a sheet in which every text is a text cell and none a formula. Numbers, truth values, dates and
    times keep their type; what Excel has no type for becomes text."""
    with needed("excel"):
        from xlsxwriter import Workbook
    content = io.BytesIO()
    num_cut = 0
    names = [*source.names, *added.names]
    rows = chain([names], rows_with_predictions(source, added, predictions))
    with TemporaryDirectory() as folder:
        book = Workbook(content, {"constant_memory": True, "tmpdir": folder})
        sheet = book.add_worksheet("predictions")
        formats = {}
        for date_type, pattern in DATE_FORMATS.items():
            formats[date_type] = book.add_format({"num_format": pattern})
        for row_number, row in enumerate(rows):
            if row_number == MAX_ROWS or len(row) > MAX_COLUMNS:
                raise InputError(TOO_LARGE)
            for column_number, value in enumerate(row):
                if _write_cell(sheet, row_number, column_number, value, formats) == CUT:
                    num_cut += 1
        book.close()
    file.buffer.write(content.getvalue())
    if num_cut:
        texts = counted(num_cut, "longer text")
        logger.warning("An Excel cell holds %d characters; cut: %s", MAX_CELL, texts)


def _write_cell(sheet: Any, row: int, column: int, value: Any, formats: dict[type, Any]) -> int:
    """Write one value and return what xlsxwriter returns."""
    if value is None:
        return 0
    if isinstance(value, str):
        return sheet.write_string(row, column, valid_text(value))
    if isinstance(value, (date, time)) and getattr(value, "tzinfo", None) is None:
        date_type = next(date_type for date_type in formats if isinstance(value, date_type))
        return sheet.write_datetime(row, column, value, formats[date_type])
    if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < EXACT:
        return sheet.write(row, column, value)
    if isinstance(value, Decimal) and value.is_finite() and len(value.as_tuple().digits) <= NUM_DIGITS:
        return sheet.write_number(row, column, float(value))
    return sheet.write_string(row, column, valid_text(value))
