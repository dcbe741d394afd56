"""Parquet, read by pyarrow in batches of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from ...config.file_formats import FORMATS
from ...errors import InputError, shorten
from . import FileStart, Reader

# What pyarrow raises for bytes that are not Parquet, and for values that Python does not have: dates after
# 9999, time zones.
PARQUET_ERRORS = (OSError, ValueError, OverflowError, LookupError, TypeError, MemoryError)
# Rows read at once
BATCH = 4096


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

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, list]]:
        """Yield the records; columns that are not in use hold None. Values of a type that Python does not
        have, such as dates after the year 9999, come as text."""
        from pyarrow import parquet

        number = 0
        with self._readable(), self.path.open("rb") as opened:
            file = parquet.ParquetFile(opened, page_checksum_verification=True)
            for batch in file.iter_batches(batch_size=BATCH):
                none = [None] * batch.num_rows
                values = (_values(column) if i in columns else none for i, column in enumerate(batch.columns))
                for record in zip(*values, strict=True):
                    number += 1
                    yield number, list(record)
            num_rows = file.metadata.num_rows
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


def _values(column: Any) -> list:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return column.cast("string").to_pylist()
