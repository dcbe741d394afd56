"""Files -> records (lists of fields, or JSON objects), one at a time: CSV, TSV, JSON, JSON Lines, Parquet,
Excel, plain text.

A file that cannot be read at all raises InputError. A record that is not valid in its format becomes a
`BadRow`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, shorten
from .excel import read_sheet
from .json_values import JSON_ERRORS, parse_json, rows_of
from .text_files import Source, read_lines

# Characters in one CSV field; csv's own limit of 131,072 is too low for long documents
FIELD_LIMIT = 1 << 26
# What pyarrow raises for bytes that are not Parquet, and for values that Python does not have: dates after
# 9999, time zones.
PARQUET_ERRORS = (OSError, ValueError, OverflowError, LookupError, TypeError, MemoryError)


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy."""

    line: int
    problem: str


@dataclass(frozen=True)
class ReadOptions:
    """The settings that decide what the rows of a file are; `DataConfig` explains them and sets their
    defaults.

    They are part of a table's cache key: one more field, and all tables are built again.
    """

    format: str = DataConfig.format
    text_column: int | str | None = DataConfig.text_column
    text_pair_column: int | str | None = DataConfig.text_pair_column
    label_column: int | str | None = DataConfig.label_column
    header: bool | None = DataConfig.header
    encoding: str = DataConfig.encoding
    quoting: str = DataConfig.quoting
    remove_spaces: bool = DataConfig.remove_spaces
    limit: int | None = DataConfig.limit


@dataclass(frozen=True)
class LabelSetOptions(ReadOptions):
    """The settings for rows with any number of labels, see app/data/label_sets.py."""

    label_separator: str | None = DataConfig.label_separator
    label_columns: list[str] | None = DataConfig.label_columns


def _plain_lines(path: Source, options: ReadOptions) -> Iterator[tuple[int, str | BadRow]]:
    """Yield the lines that are not blank, without their line ends.

    A carriage return inside a line may be a line end: reading the line as one row could join many rows.
    """
    for number, line in enumerate(read_lines(path, options.encoding), 1):
        line = line.rstrip("\r\n")
        if "\r" in line.strip(" \r"):
            problem = f"a carriage return is inside the line: {excerpt(line)}; end lines with LF or CRLF"
            yield number, BadRow(number, problem)
        elif line.strip(" \r"):
            yield number, line


def _delimited(path: Source, options: ReadOptions, delimiter: str, quoted: bool) -> Iterator[tuple[int, Any]]:
    if not quoted:
        for number, line in _plain_lines(path, options):
            yield number, line if isinstance(line, BadRow) else line.split(delimiter)
        return
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(read_lines(path, options.encoding), delimiter=delimiter, strict=True)
    while True:
        first = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield first, BadRow(first, _csv_problem(str(error), first, reader.line_num))
            # None of these lines can be read: each counts
            for line in range(first + 1, reader.line_num + 1):
                yield line, BadRow(line, f"part of the invalid record that begins in line {first}")
            continue
        if record:
            yield first, record


def _csv_problem(error: str, first: int, last: int) -> str:
    if error.startswith("new-line character"):
        return "a carriage return is outside quotes; end lines with LF or CRLF, or enclose the text in double quotes"
    record = f"the record from line {first} to {last}" if last > first else "the record"
    return (
        f"{record} is not valid CSV ({error}); double the quotes inside quoted fields, or set --data.quoting "
        "none "
        "if quotes are part of the text"
    )


def _json_lines(path: Source, options: ReadOptions) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(read_lines(path, options.encoding), 1):
        if not line.strip():
            continue
        try:
            yield number, parse_json(line)
        except JSON_ERRORS as error:
            problem = (
                f"not a valid JSON value ({error}): {excerpt(line)}; each line must be one object or array"
            )
            yield number, BadRow(number, problem)


def _json_array(path: Source, options: ReadOptions) -> Iterator[tuple[int, Any]]:
    text = "".join(read_lines(path, options.encoding))
    try:
        records = parse_json(text)
    except json.JSONDecodeError as error:
        remedy = "fix the file there"
        # Values one after another
        if error.msg == "Extra data":
            is_lines = (error.lineno, error.colno) == (2, 1)
            one_array = (
                "make one array of the values: [ before the first, a comma between two, ] after the last"
            )
            remedy = "it looks like JSON Lines, set --data.format jsonl" if is_lines else one_array
        near = excerpt(text[error.pos :]) if text[error.pos :].strip() else "the end of the file"
        raise InputError(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg} at column {error.colno}), found "
            f"{near}; {remedy}"
        ) from error
    except JSON_ERRORS as error:
        raise InputError(f"{path}: JSON that cannot be read ({error}); fix the file") from error
    try:
        rows = rows_of(records)
    except ValueError as error:
        raise InputError(f"{path}: one array of rows is needed, found {error}") from error
    if rows is None:
        raise InputError(
            f"{path}: an array of pairs or of objects is needed, found {excerpt(records)}; put the rows into "
            "one array, or "
            "one a line and set --data.format jsonl"
        )
    yield from enumerate(rows, 1)


def _parquet(path: Path, wanted: Collection[int | None]) -> Iterator[tuple[int, list]]:
    """Yield the records; columns that are not `wanted` hold None, as Python may not have their types."""
    from pyarrow import ArrowException, parquet

    number = 0
    try:
        with path.open("rb") as opened:
            file = parquet.ParquetFile(opened, page_checksum_verification=True)
            for batch in file.iter_batches(batch_size=4096):
                none = [None] * batch.num_rows
                values = (
                    column.to_pylist() if i in wanted else none for i, column in enumerate(batch.columns)
                )
                for record in zip(*values, strict=True):
                    number += 1
                    yield number, list(record)
            num_rows = file.metadata.num_rows
    except (ArrowException, *PARQUET_ERRORS) as error:
        raise InputError(f"{path}: not a readable Parquet file: {shorten(str(error), 200)}") from error
    if number != num_rows:
        raise InputError(
            f"{path}: the Parquet file is damaged: its footer says {num_rows:,} rows, found {number:,}; "
            "write it again"
        )


def parquet_names(path: Path) -> list[str]:
    """Return the names of the columns; raises InputError for a file that is not Parquet, and if pyarrow is
    not installed."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet files need pyarrow; install it with: pip install pyarrow"
        ) from error
    try:
        with path.open("rb") as file:
            return parquet.read_schema(file).names
    except (ArrowException, *PARQUET_ERRORS) as error:
        raise InputError(f"{path}: not a readable Parquet file: {shorten(str(error), 200)}") from error


def read_records(
    path: Source, options: ReadOptions, format: str, wanted: Collection[int | None] = ()
) -> Iterator[tuple[int, Any]]:
    """Yield (number, record) for each record of a checked file; `row_unit(format)` is what the number counts,
    from 1.

    `wanted` are the columns to read from a Parquet file.
    """
    if format in ("csv", "tsv"):
        quoted = options.quoting == "double" or (options.quoting == "auto" and format == "csv")
        return _delimited(path, options, "," if format == "csv" else "\t", quoted)
    if format == "parquet":
        return _parquet(path, wanted)
    if format == "xlsx":
        return read_sheet(path)
    if format == "text":
        return (
            (number, line)
            for number, line in _plain_lines(path, options)
            if isinstance(line, BadRow) or line.strip()
        )
    return _json_lines(path, options) if format == "jsonl" else _json_array(path, options)
