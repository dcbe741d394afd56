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
FIRST_YEAR = 1900  # of a date
DATE_PATTERN = "yyyy-mm-dd"
TIME_PATTERN = "hh:mm:ss"
MILLISECONDS_PATTERN = ".000"
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
    names = [*source.names, *added.names]
    rows = chain([names], rows_with_predictions(source, added, predictions))
    with TemporaryDirectory() as folder:
        book = Workbook(content, {"constant_memory": True, "tmpdir": folder})
        writer = _CellWriter(book)
        for row_number, row in enumerate(rows):
            if row_number == MAX_ROWS or len(row) > MAX_COLUMNS:
                raise InputError(TOO_LARGE)
            for column_number, value in enumerate(row):
                writer.write(row_number, column_number, value)
        book.close()
    file.buffer.write(content.getvalue())
    if writer.num_cut:
        texts = counted(writer.num_cut, "longer text")
        logger.warning("An Excel cell holds %d characters; cut: %s", MAX_CELL, texts)
    if writer.num_shortened:
        times = counted(writer.num_shortened, "time")
        logger.warning("Excel keeps milliseconds; with more digits, which .csv keeps: %s", times)


class _CellWriter:
    """Writes the cells of a new sheet. `num_cut` counts texts that were too long, and `num_shortened` times
    that lost the digits after the millisecond."""

    def __init__(self, book: Any) -> None:
        self.num_cut = 0
        self.num_shortened = 0
        self._sheet = book.add_worksheet("predictions")
        # A sheet has one format for each way to show dates and times
        self._formats: dict[str, Any] = {}
        for pattern in (DATE_PATTERN, TIME_PATTERN, f"{DATE_PATTERN} {TIME_PATTERN}"):
            for whole_pattern in (pattern, pattern + MILLISECONDS_PATTERN):
                self._formats[whole_pattern] = book.add_format({"num_format": whole_pattern})

    def write(self, row: int, column: int, value: Any) -> None:
        """Write one value in its type, or as text where Excel cannot keep it. No cell is written for no value
        and for NaN, the one value that differs from itself."""
        if value is None or value != value:  # noqa: PLR0124
            return
        if isinstance(value, (date, time)) and _is_excel_time(value):
            self._write_time(row, column, value)
        elif isinstance(value, (int, float, Decimal)) and _is_excel_number(value):
            number = value
            if isinstance(value, Decimal):
                number = float(value)
            self._sheet.write(row, column, number)
        elif self._sheet.write_string(row, column, valid_text(value)) == CUT:
            self.num_cut += 1

    def _write_time(self, row: int, column: int, value: date | time) -> None:
        pattern = TIME_PATTERN
        if isinstance(value, date):
            pattern = DATE_PATTERN
        if isinstance(value, datetime):
            pattern = f"{DATE_PATTERN} {TIME_PATTERN}"
        if isinstance(value, (datetime, time)):
            milliseconds = value.microsecond // 1000
            # Times of pandas have nanoseconds
            if value.microsecond % 1000 or getattr(value, "nanosecond", 0):
                self.num_shortened += 1
                value = value.replace(microsecond=milliseconds * 1000)
            if milliseconds:
                pattern += MILLISECONDS_PATTERN
        self._sheet.write_datetime(row, column, value, self._formats[pattern])


def _is_excel_time(value: date | time) -> bool:
    """Return whether Excel has this date or time. It has no time zones."""
    if getattr(value, "tzinfo", None) is not None:
        return False
    return isinstance(value, time) or value.year >= FIRST_YEAR


def _is_excel_number(value: float | Decimal) -> bool:
    """Return whether Excel keeps a number: integers and decimals with all digits, fractions as rounded."""
    if isinstance(value, int):
        return abs(value) < EXACT
    if not math.isfinite(value):
        return False
    if isinstance(value, float) and abs(value) < EXACT:
        return True
    digits = Decimal(str(value)).normalize().as_tuple().digits
    return len(digits) <= NUM_DIGITS
