"""Files that keep columns with their types, Parquet and Arrow, and the names of classes in their metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, as_input_error
from .encodings import BLOCK_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

BUFFER = 1 << 20  # bytes of a Parquet column read at once, so that a large group of rows is not held
# A file of Arrow begins so, and a stream, as `datasets.save_to_disk` writes it
ARROW_FILE = b"ARROW1\x00\x00"
ARROW_STREAM = b"\xff\xff\xff\xff"


def readable(path: Path) -> AbstractContextManager:
    """Return a context that raises InputError where a library cannot read a file."""
    remedy = "save it again, a workbook without a password, or save it as CSV (UTF-8)"
    return as_input_error(f"{path}: the file cannot be read", remedy)


def parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file; raises InputError for a damaged one."""
    from pyarrow import parquet

    num_rows = 0
    with readable(path), path.open("rb") as opened:
        file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
        for batch in file.iter_batches(BLOCK_ROWS):
            check_names(batch.schema)
            num_rows += batch.num_rows
            yield batch
        if file.metadata.num_rows != num_rows:
            problem = f"its footer says {file.metadata.num_rows:,} rows, found {num_rows:,}; write it again"
            raise InputError(f"{path}: the Parquet file is damaged: {problem}")


def arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file or a stream of Arrow, as `datasets.save_to_disk` and Feather write them."""
    from pyarrow import ipc

    with readable(path), path.open("rb") as opened:
        if opened.peek(len(ARROW_FILE)).startswith(ARROW_FILE):
            file = ipc.open_file(opened)
            batches = (file.get_batch(number) for number in range(file.num_record_batches))
        else:
            batches = ipc.open_stream(opened)
        for batch in batches:
            check_names(batch.schema)
            for start in range(0, batch.num_rows, BLOCK_ROWS):
                yield batch.slice(start, BLOCK_ROWS)


def check_names(schema: pa.Schema) -> None:
    """Raise UnicodeDecodeError where the name of a column is no UTF-8.

    Arrow decodes a name when it is asked for. That must not happen first outside of `readable`.
    """
    for index in range(len(schema)):
        str(schema.field(index).name)


@dataclass(frozen=True)
class ArrowBlock:
    """Rows of a file that keeps columns; `lines` has the number of each. `class_names` has the names of the
    classes of each column, None where its numbers do not stand for classes."""

    path: Path
    lines: range
    batch: pa.RecordBatch
    class_names: list[list[str] | None]

    def values(self, column: int) -> list:
        """Return the values of a column; a number that stands for a class is its name."""
        # Values of a damaged file may be no text
        with readable(self.path):
            values = self.batch.column(column).to_pylist()
        names = self.class_names[column]
        if names:
            return [_named(value, names) for value in values]
        return values

    def first(self, count: int) -> ArrowBlock:
        return replace(self, lines=self.lines[:count], batch=self.batch.slice(0, count))


def arrow_blocks(batches: Iterator[pa.RecordBatch], path: Path) -> Iterator[ArrowBlock]:
    """Yield the batches of a file with the numbers of their rows, from 1. Raises InputError for a file that
    cannot be read."""
    num_rows = 0
    names: list[list[str] | None] | None = None
    with readable(path):
        for batch in batches:
            if names is None:
                # All batches of a file have one schema
                names = [class_names(batch.schema, column) for column in range(batch.num_columns)]
            lines = range(num_rows + 1, num_rows + batch.num_rows + 1)
            num_rows += batch.num_rows
            yield ArrowBlock(path, lines, batch, names)


def class_names(schema: pa.Schema, index: int) -> list[str] | None:
    """Return the names of the classes of a column, which Hugging Face's `datasets` writes into the metadata
    of a schema (https://huggingface.co/docs/datasets/about_dataset_features), or None."""
    metadata = schema.metadata or {}
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        feature = features[schema.names[index]]
        if isinstance(feature, list):
            feature = feature[0]
        # A list of classes has the classes inside
        feature = feature.get("feature", feature)
        if feature["_type"] == "ClassLabel":
            return feature["names"]
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    return None


def _named(value: Any, names: list[str]) -> Any:
    """Return the name of a class. -1 stands for "no label" in such files, and any other number is wrong."""
    if isinstance(value, list):
        return [_named(number, names) for number in value]
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return None
