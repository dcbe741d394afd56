"""Predictions -> a Parquet file: the columns of the input with their types, then the predictions."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from ..data.read import BUFFER, parquet_batches
from ..errors import InputError


def column_types(samples: Iterable[Any]) -> list:
    """Return the Arrow types of columns, from a value of each."""
    import pyarrow

    return [pyarrow.array([value]).type for value in samples]


def write_parquet(
    file: TextIO,
    source: Path,
    added: list[tuple[str, Any]],
    rows: Iterable[tuple[int, list]],
) -> None:
    """Write rows of the Parquet file `source` with the columns `added` (name, Arrow type). `rows`: numbers
    from 1, ascending, with their values; others are left out. Holds one batch."""
    import pyarrow
    from pyarrow import parquet

    rows = iter(rows)
    following = next(rows, None)
    with source.open("rb") as opened:
        read = parquet.ParquetFile(opened, buffer_size=BUFFER)
        known = read.schema_arrow
        schema = pyarrow.schema([*known, *added], known.metadata)
        with parquet.ParquetWriter(file.buffer, schema) as writer:
            start = 0
            for batch in parquet_batches(source, read):
                indices, values = [], [[] for _ in added]
                while following is not None and following[0] <= start + batch.num_rows:
                    indices.append(following[0] - start - 1)
                    for column, value in zip(values, following[1], strict=True):
                        column.append(value)
                    following = next(rows, None)
                kept = batch.take(pyarrow.array(indices, pyarrow.int64())).columns
                arrays = [
                    pyarrow.array(column, type) for column, (_, type) in zip(values, added, strict=True)
                ]
                writer.write_batch(pyarrow.record_batch([*kept, *arrays], schema=schema))
                start += batch.num_rows
    if following is not None:
        raise InputError(f"{source}: a file must not change while it is read; predict again")
