"""The rows of a Parquet or Arrow file with predictions, as Parquet: all columns keep their types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..data.bad_row import changed_error
from ..data.read import FORMATS
from ..errors import InputError
from .added_columns import AddedColumns
from .predictor import Prediction
from .sources import Source

if TYPE_CHECKING:
    import pyarrow as pa


def write_parquet(
    file: TextIO, source: Source, added: AddedColumns, predictions: Iterable[Prediction]
) -> None:
    """Write the columns of a file that keeps their types, then those that are added. Rows without a
    prediction are left out. Raises InputError for a type that Parquet does not have."""
    import pyarrow as pa
    from pyarrow import parquet

    path = Path(source.name)
    batches = FORMATS[source.format].batches(path)
    first_batch = next(batches)
    added_fields = map(pa.field, added.names, added.types())
    schema = pa.schema([*first_batch.schema, *added_fields], first_batch.schema.metadata)
    try:
        writer = parquet.ParquetWriter(file.buffer, schema)
    except pa.ArrowException as error:
        raise InputError(
            f"{path}: its columns cannot be written as Parquet: {error}; write .jsonl"
        ) from error
    with writer:
        for columns, predicted in _predicted_batches(source, chain([first_batch], batches), predictions):
            arrays = [*columns, *added.arrays(predicted)]
            writer.write_table(pa.table(arrays, schema=schema))


def _predicted_batches(
    source: Source, batches: Iterable[pa.RecordBatch], predictions: Iterable[Prediction]
) -> Iterator[tuple[list[pa.Array], list[Prediction]]]:
    """Yield the columns of the rows of each batch that have predictions, and these predictions, which are in
    the order of the file. Raises InputError where the file has changed since it was opened."""
    import pyarrow as pa

    remaining = iter(predictions)
    prediction = next(remaining, None)
    num_rows = 0
    for batch in batches:
        first_line = num_rows + 1
        num_rows += batch.num_rows
        indices = []
        predicted = []
        while prediction is not None and prediction.row.line <= num_rows:
            indices.append(prediction.row.line - first_line)
            predicted.append(prediction)
            prediction = next(remaining, None)
        yield batch.take(pa.array(indices, pa.int64())).columns, predicted
    source.check_unchanged()
    if prediction is not None:
        raise changed_error(source.name)
