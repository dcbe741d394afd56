"""Files that keep columns with their types, Parquet and Arrow, and the names of classes in their metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, as_input_error
from .encodings import ARROW_FILE, BLOCK_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

BUFFER = 1 << 20  # bytes of a Parquet column read at once, so that a large group of rows is not held


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
            yield without_views(batch)
        if file.metadata.num_rows != num_rows:
            problem = f"its footer says {file.metadata.num_rows:,} rows, found {num_rows:,}; write it again"
            raise InputError(f"{path}: the Parquet file is damaged: {problem}")


def arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file or a stream of Arrow, as `datasets.save_to_disk` and Feather write them."""
    from pyarrow import ipc

    with readable(path), path.open("rb") as opened:
        if opened.peek(len(ARROW_FILE)).startswith(ARROW_FILE):
            file = ipc.open_file(opened)
            batches = map(file.get_batch, range(file.num_record_batches))
        else:
            batches = ipc.open_stream(opened)
        for batch in batches:
            check_names(batch.schema)
            batch = without_views(batch)
            for start in range(0, batch.num_rows, BLOCK_ROWS):
                yield batch.slice(start, BLOCK_ROWS)


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same values without views, the layout in which Polars writes texts and lists: Arrow cannot
    take rows of them yet (https://github.com/apache/arrow/issues/43010)."""
    import pyarrow as pa

    fields = []
    for field in batch.schema:
        fields.append(field.with_type(_type_without_views(field.type)))
    schema = pa.schema(fields, batch.schema.metadata)
    if schema.equals(batch.schema):
        return batch
    return batch.cast(schema)


def _type_without_views(type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return _with_other_types(type, {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()})


def _with_other_types(type: pa.DataType, others: dict[pa.DataType, pa.DataType]) -> pa.DataType:
    """Return a type with others in the place of some, also inside of lists, objects and dictionaries."""
    import pyarrow as pa

    if pa.types.is_dictionary(type):
        return pa.dictionary(type.index_type, _with_other_types(type.value_type, others), type.ordered)
    if pa.types.is_struct(type):
        fields = []
        for field in type:
            fields.append(field.with_type(_with_other_types(field.type, others)))
        return pa.struct(fields)
    list_type = None
    if pa.types.is_list(type):
        list_type = pa.list_
    elif pa.types.is_large_list(type):
        list_type = pa.large_list
    if list_type is not None:
        item = type.value_field
        return list_type(item.with_type(_with_other_types(item.type, others)))
    return others.get(type, type)


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
            values = python_values(self.batch.column(column))
        names = self.class_names[column]
        if names:
            return [_named(value, names) for value in values]
        return values

    def first(self, count: int) -> ArrowBlock:
        return replace(self, lines=self.lines[:count], batch=self.batch.slice(0, count))


def python_values(column: pa.Array | pa.ChunkedArray) -> list:
    """Return values as Python has them, and dates and times that it does not have as text: in years after
    9999, or with nanoseconds where no date says so. A number of 32 bits is the one with the fewest digits
    that stands for it: 0.1, not 0.10000000149011612."""
    import pyarrow as pa

    as_doubles = _with_other_types(column.type, {pa.float32(): pa.float64()})
    if as_doubles != column.type:
        digits = column.cast(_with_other_types(column.type, {pa.float32(): pa.string()}))
        return digits.cast(as_doubles).to_pylist()
    if not (
        pa.types.is_date(column.type) or pa.types.is_time(column.type) or pa.types.is_timestamp(column.type)
    ):
        return column.to_pylist()
    try:
        if pa.types.is_time64(column.type):
            # This raises an error where nanoseconds would be lost
            column.cast(pa.time64("us"))
        return column.to_pylist()
    except (ValueError, OverflowError):
        return column.cast(pa.string()).to_pylist()


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
