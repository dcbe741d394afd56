"""Predictions -> a file in the format of its ending, standard output, or lines for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .added_columns import AddedColumns
from .excel_writer import check_num_rows, write_xlsx
from .output_files import open_output
from .parquet_writer import write_parquet
from .predictor import Prediction
from .sources import Source
from .text_writers import write_csv, write_jsonl, write_lines

if TYPE_CHECKING:
    from .open_model import OpenedModel

WRITERS = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "xlsx": write_xlsx,
    "lines": write_lines,
}


def write_predictions(
    path: str | None,
    format: str,
    source: Source,
    opened: OpenedModel,
    predictions: Iterable[Prediction],
    on_bad_row: str = "skip",
    overwrite: bool = False,
    keeps_guess: bool = False,
) -> None:
    """Write the rows of a source with the predictions of a model as they come, to a file (a new one unless
    `overwrite`) or to standard output (`path` None), in the `format` of one of `WRITERS`. With `keep`, a
    column says why rows have no label, if one is invalid or may be; `keeps_guess` is that of `AddedColumns`.
    Raises InputError and TrainingError as `open_output` does. Texts are written as they were read, even those
    that a spreadsheet would run as formulas: see docs/data.md."""
    scan = source.scan
    if format == "xlsx" and scan is not None:
        check_num_rows(scan.num_rows if on_bad_row == "keep" else scan.num_good)
    place = None
    if on_bad_row == "keep" and (scan is None or scan.num_bad > 0):
        place = source.unit
    with open_output(path, format, overwrite) as file:
        added = AddedColumns(opened.predictor.task, source.names, opened.threshold, place, keeps_guess)
        WRITERS[format](file, source, added, predictions)
