"""Parquet, read by pyarrow in batches of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from ...config.file_formats import FORMATS
from ...errors import InputError, shorten
from ..text_files import Span
from . import FileStart, Reader

# What pyarrow raises for bytes that are not Parquet, and for values that Python does not have: dates after
# 9999, time zones.
PARQUET_ERRORS = (OSError, ValueError, OverflowError, LookupError, TypeError, MemoryError)
# Rows read at once
BATCH = 4096
# Bytes of a column that are read at once, so that a large group of rows is not held
BUFFER = 1 << 20


class ParquetReader(Reader):
    """The rows of a Parquet file."""

    @classmethod
    def recognises(cls, start: FileStart) -> bool:
        """Return whether a file begins like Parquet."""
        return start.content.startswith(FORMATS["parquet"].magic)

    def column_names(self) -> list[str]:
        """Return the names of the columns; raises InputError for a file that is not Parquet."""
        from pyarrow import parquet

        with self._readable(), self.path.open("rb") as file:
            return parquet.read_schema(file).names

    def num_rows(self) -> int:
        """Return the number of rows in the footer; raises InputError for a file that is not Parquet."""
        from pyarrow import parquet

        with self._readable(), self.path.open("rb") as file:
            return parquet.read_metadata(file).num_rows

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, list]]:
        """Yield the records; columns that are not in use hold None. Values of a type that Python does not
        have, such as dates after the year 9999, come as text."""
        from pyarrow import parquet

        number = self.first_line - 1
        with self._readable(), self.path.open("rb") as opened:
            file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
            for batch in row_batches(file, self.span):
                none = [None] * batch.num_rows
                values = (_values(column) if i in columns else none for i, column in enumerate(batch.columns))
                for record in zip(*values, strict=True):
                    number += 1
                    yield number, list(record)
            num_rows = file.metadata.num_rows if self.span is None else self.span.end
        if number != num_rows:
            raise InputError(
                f"{self.path}: the Parquet file is damaged: its footer says {num_rows:,} rows, found "
                f"{number:,}; write it again"
            )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        from pyarrow import ArrowException

        try:
            yield
        except (ArrowException, *PARQUET_ERRORS) as error:
            message = shorten(str(error), 200)
            raise InputError(f"{self.path}: not a readable Parquet file: {message}") from error


def row_batches(file: Any, span: Span | None = None) -> Iterator[Any]:
    """Yield the rows of an open Parquet file, or those in `span`, as batches of at most `BATCH` rows; other
    groups of rows are not read."""
    if span is None:
        yield from file.iter_batches(batch_size=BATCH)
        return
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    ends = list(accumulate(sizes))
    groups = [group for group, end in enumerate(ends) if end > span.start and end - sizes[group] < span.end]
    at = ends[groups[0]] - sizes[groups[0]] if groups else 0
    for batch in file.iter_batches(batch_size=BATCH, row_groups=groups):
        low, high = max(span.start - at, 0), min(span.end - at, batch.num_rows)
        if low < high:
            yield batch.slice(low, high - low)
        at += batch.num_rows
        if at >= span.end:
            return


def _values(column: Any) -> list:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return column.cast("string").to_pylist()
