"""Predictions -> a new file, in the format of its ending, standard output, or lines for people."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from ..data.cells import as_json, as_text, valid_text
from ..data.column_files import parquet_batches
from ..data.row_cells import free_names
from ..errors import InputError, listed, needed, shorten
from ..tasks.columns import answers_as_arrow, prediction_columns, ranked_labels
from ..tasks.task import Task
from ..text_table import short_label
from .output_files import open_output
from .predictor import Prediction
from .sources import Source

if TYPE_CHECKING:
    from .open_model import OpenedModel

Predictions = Iterable[Prediction]
logger = logging.getLogger(__name__)
# REASON is the column that says why a row has no label; TAKEN stands before the name of an added column where
# the input has a column of that name
REASON, TAKEN = "reason", "predicted_"
MAX_LABELS = 10  # labels that are listed below a prediction for people
# These are limits of Excel; it keeps 15 digits of a number, so longer ones, such as ids, are written as text
MAX_CELL, MAX_ROWS, MAX_COLUMNS, EXACT = 32_767, 1_048_576, 16_384, 10**15
TOO_LARGE = f"an Excel sheet has {MAX_ROWS:,} rows and {MAX_COLUMNS:,} columns, there are more; write CSV"
DATES = {datetime: "yyyy-mm-dd hh:mm:ss", date: "yyyy-mm-dd", time: "hh:mm:ss"}


class AddedColumns:
    """The columns that predictions of a task add to rows: the answer, then those of `Task.columns`, with a
    `threshold` also the decision. With `place`, which says what a row's number counts (or is empty, where the
    problem of a row says it), a last column says why an invalid row has no answer. `taken` are the names of
    the rows' own columns, of which none is replaced: an added one of such a name is called predicted_NAME.
    """

    def __init__(
        self, task: Task, taken: Iterable[str] = (), threshold: float | None = None, place: str | None = None
    ) -> None:
        self.task, self.threshold, self.place = task, threshold, place
        # Any probabilities show the columns and their types
        self.sample = prediction_columns(task, np.full(len(task.label_names), 0.5), threshold)
        self.sample |= {} if place is None else {REASON: REASON}
        self.names = free_names([task.answer_column, *self.sample], taken, TAKEN)

    def values(self, prediction: Prediction) -> list:
        """Return the values of the columns, the answer as it is; an invalid row has only the reason."""
        row, answer, probabilities = prediction
        if probabilities is None:
            where = f"{self.place} {row.line}: " if self.place else ""
            return [None] * (len(self.names) - 1) + [f"{where}{row.problem}"]
        values = [answer, *prediction_columns(self.task, probabilities, self.threshold).values()]
        return values if self.place is None else [*values, None]

    def arrays(self, predictions: Predictions) -> list:
        """Return the columns of predictions as Arrow arrays, (num_rows,) each."""
        import pyarrow as pa

        types = [
            answers_as_arrow(self.task, []).type,
            *(pa.array([one]).type for one in self.sample.values()),
        ]
        columns = list(zip(*map(self.values, predictions), strict=True)) or [[]] * len(types)
        return list(map(pa.array, columns, types))


def write_predictions(
    path: str | None,
    format: str,
    source: Source,
    opened: OpenedModel,
    predictions: Predictions,
    on_bad_row: str = "skip",
) -> None:
    """Write the rows of a source with the predictions of a model as they come, to a new file or to standard
    output (`path` None), in the `format` of one of `WRITERS`. With `keep`, a column says why rows have no
    label, if one is invalid or may be. Raises InputError and TrainingError as `open_output` does. Texts are
    written as they were read, even those that a spreadsheet would run as formulas: see docs/data.md."""
    scan = source.scan
    if format == "xlsx" and scan is not None:
        num_written = scan.num_rows if on_bad_row == "keep" else scan.num_good
        if num_written >= MAX_ROWS:
            raise InputError(TOO_LARGE)
    with open_output(path, format) as file:
        may_be_bad = on_bad_row == "keep" and (scan is None or scan.num_bad > 0)
        place = source.unit if may_be_bad else None
        added = AddedColumns(opened.predictor.task, source.names, opened.threshold, place)
        WRITERS[format](file, source, added, predictions)


def _table(source: Source, added: AddedColumns, predictions: Predictions) -> Iterator[list]:
    """Yield the names of all columns, then the values of each row."""
    names, known = source.names, set(source.names)
    yield [*names, *added.names]
    for prediction in predictions:
        record = source.record(prediction.row)
        if late := record.keys() - known:
            raise InputError(
                f"{source.name}, {source.unit} {prediction.row.line}: the first rows of a stream have all "
                f"columns, found the key {listed(sorted(late))} later; write JSON Lines (--output NAME.jsonl)"
            )
        yield [*map(record.get, names), *added.values(prediction)]


def write_csv(file: TextIO, source: Source, added: AddedColumns, predictions: Predictions) -> None:
    """Write rows with their predictions as CSV: lists and objects as JSON, probabilities with six digits."""
    writer = csv.writer(file)
    num_as_is = len(source.names) + 1  # the columns of the input, and the answer
    for row in _table(source, added, predictions):
        rest = (f"{value:.6f}" if isinstance(value, float) else as_text(value) for value in row[num_as_is:])
        writer.writerow([*map(as_text, row[:num_as_is]), *rest])


def _write_jsonl(file: TextIO, source: Source, added: AddedColumns, predictions: Predictions) -> None:
    for prediction in predictions:
        record = source.record(prediction.row)
        # An object has keys of its own
        is_free = record.keys().isdisjoint(added.names)
        names = added.names if is_free else free_names(added.names, record, TAKEN)
        record |= zip(names, added.values(prediction), strict=True)
        # JSON has no NaN, the one value that differs from itself
        values = {name: None if value != value else value for name, value in record.items()}  # noqa: PLR0124
        file.write(json.dumps(values, ensure_ascii=False, default=as_json) + "\n")


def parquet_columns(
    source: Source, rows: Iterable, line_of: Callable[[Any], int] = lambda row: row.line
) -> Iterator[tuple[Any, list]]:
    """Yield the columns of rows of a Parquet file, as a table with their types, and these rows, a batch at a
    time. `rows` are in the order of the file, and may be some of them; `line_of` gives the number of one."""
    import pyarrow as pa

    path, rows, end = Path(source.name), iter(rows), 0
    following = next(rows, None)
    for batch in parquet_batches(path):
        start, end = end, end + batch.num_rows
        some = []
        while following is not None and line_of(following) <= end:
            some.append(following)
            following = next(rows, None)
        yield pa.table(batch.take(pa.array([line_of(row) - start - 1 for row in some], pa.int64()))), some
    if following is not None:
        raise InputError(f"{path}: a data file must not change while it is read; start again")


def _write_parquet(file: TextIO, source: Source, added: AddedColumns, predictions: Predictions) -> None:
    """Write the columns of a Parquet file with their types; rows without a prediction are left out."""
    import pyarrow as pa
    from pyarrow import parquet

    known = parquet.read_schema(source.name)
    fields = [pa.field(name, one.type) for name, one in zip(added.names, added.arrays([]), strict=True)]
    schema = pa.schema([*known, *fields], known.metadata)
    with parquet.ParquetWriter(file.buffer, schema) as writer:
        for table, some in parquet_columns(source, predictions, lambda prediction: prediction.row.line):
            writer.write_table(pa.table([*table.columns, *added.arrays(some)], schema=schema))


def _write_xlsx(file: TextIO, source: Source, added: AddedColumns, predictions: Predictions) -> None:
    """Write a sheet in which every text is a text cell and none a formula. Numbers, truth values, dates and
    times keep their type; what Excel has no type for becomes text."""
    with needed("excel"):
        from xlsxwriter import Workbook
    content, num_cut = io.BytesIO(), 0
    with TemporaryDirectory() as folder:
        book = Workbook(content, {"constant_memory": True, "tmpdir": folder})
        sheet = book.add_worksheet("predictions")
        forms = {kind: book.add_format({"num_format": form}) for kind, form in DATES.items()}
        for number, row in enumerate(_table(source, added, predictions)):
            if number == MAX_ROWS or len(row) > MAX_COLUMNS:
                raise InputError(TOO_LARGE)
            for column, value in enumerate(row):
                if type(value) in DATES and getattr(value, "tzinfo", None) is None:
                    sheet.write_datetime(number, column, value, forms[type(value)])
                elif isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < EXACT:
                    sheet.write(number, column, value)
                elif value is not None:
                    # It cuts what is longer than a cell, and returns -2
                    num_cut += sheet.write_string(number, column, valid_text(value)) == -2
        book.close()
    file.buffer.write(content.getvalue())
    if num_cut:
        logger.warning("%d texts are longer than an Excel cell, and were cut at %d", num_cut, MAX_CELL)


def _write_lines(file: TextIO, _source: Source, added: AddedColumns, predictions: Predictions) -> None:
    """Write predictions of valid rows for people: answer and text, then the most probable labels."""
    task = added.task
    for row, answer, probabilities in predictions:
        columns = prediction_columns(task, probabilities, added.threshold)
        answers = answer if isinstance(answer, list) else [str(answer)]
        first = [", ".join(map(short_label, answers)) or "(no label)"]
        first += [f"{columns['probability']:.4f}"] if "probability" in columns else []
        first += [columns["decision"]] if "decision" in columns else []
        ranked = ranked_labels(task, probabilities)[:MAX_LABELS]
        shown = "  ".join(f"{short_label(task.label_names[at])} {probabilities[at]:.4f}" for at in ranked)
        for line in (f"{' '.join(first)}  {row.text}", f"    {shown}"):
            # A terminal would act on control characters
            file.write(shorten(line, len(line)) + "\n")


WRITERS = {
    "csv": write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "xlsx": _write_xlsx,
    "lines": _write_lines,
}
