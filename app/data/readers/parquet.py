"""Parquet, read by pyarrow in batches of rows."""

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
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

        with readable(self.path), self.path.open("rb") as file:
            return parquet.read_schema(file).names

    def num_rows(self) -> int:
        """Return the number of rows in the footer; raises InputError for a file that is not Parquet."""
        from pyarrow import parquet

        with readable(self.path), self.path.open("rb") as file:
            return parquet.read_metadata(file).num_rows

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, list]]:
        """Yield the records; columns that are not in use hold None. Values of a type that Python does not
        have, such as dates after the year 9999, come as text."""
        from pyarrow import parquet

        number = self.first_line - 1
        with readable(self.path), self.path.open("rb") as opened:
            file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
            for batch in row_batches(self.path, file, self.span):
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
def readable(path: Path) -> Iterator[None]:
    """Raise InputError for what pyarrow raises where it reads `path`."""
    from pyarrow import ArrowException

    try:
        yield
    except InputError:
        raise
    except (ArrowException, *PARQUET_ERRORS) as error:
        message = shorten(str(error), 200)
        raise InputError(f"{path}: not a readable Parquet file: {message}") from error


def row_batches(path: Path, file: Any, span: Span | None = None) -> Iterator[Any]:
    """Yield the rows of an open Parquet file, or those in `span`, as batches of at most `BATCH` rows; other
    groups of rows are not read. Raises InputError where it cannot be read."""
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    start, end = span[:2] if span else (0, math.inf)
    groups, at, first = [], 0, None
    for group, size in enumerate(sizes):
        if at < end and at + size > start:
            first = at if first is None else first
            groups.append(group)
        at += size
    at = first or 0
    with readable(path):
        for batch in file.iter_batches(batch_size=BATCH, row_groups=groups if span else None):
            low, high = max(start - at, 0), min(end - at, batch.num_rows)
            at += batch.num_rows
            if low < high:
                yield batch.slice(low, high - low)
            if at >= end:
                return


def _values(column: Any) -> list:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return column.cast("string").to_pylist()
