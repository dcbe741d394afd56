"""Records of files of every format, in chunks, and which format a file has: by its setting, else by its
content, else by its name."""

from __future__ import annotations

import codecs
import csv
import json
import math
import os
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, shorten
from ..runtime.disk import unique_keys
from ..words import _
from .file_formats import FORMATS, SUFFIXES
from .files import Source, Span, Stream, check_file, codec_name, read_lines, read_start

START = 1 << 20  # bytes from which the format is recognised
SEEN_LINES = 500  # lines from which the separator is recognised
CHUNK = 8192  # records read together
PARQUET_BATCH = 4096  # rows
BUFFER = 1 << 20  # bytes of a Parquet column read at once, so that a large group of rows is not held
# csv's own limit of 131,072 characters in a field is too low for long documents
FIELD_LIMIT = 1 << 26
# XML of texts shrinks to a tenth, repeated ones to a hundredth: what grows more would fill the memory
MAX_EXPANSION, ALWAYS_UNPACKED = 200, 100 << 20
# ValueError also: an integer of thousands of digits
JSON_ERRORS = (ValueError, RecursionError)
# What pyarrow raises for bytes that are not Parquet, and for values that Python does not have: dates after
# 9999, time zones.
PARQUET_ERRORS = (OSError, ValueError, OverflowError, LookupError, TypeError, MemoryError)


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False


def bad_row_message(path: object, unit: str, number: int, problem: object) -> str:
    """Return a problem of a row with its place; `unit` is what the number counts."""
    texts = {
        "line": _("{path}, line {number}: {problem}"),
        "row": _("{path}, row {number}: {problem}"),
        "element": _("{path}, element {number}: {problem}"),
        "text": _("{path}, text {number}: {problem}"),
    }
    return texts[unit].format(path=path, number=number, problem=problem)


@dataclass(frozen=True)
class ReadOptions:
    """The settings that decide what the rows of a file are; `DataConfig` explains them and sets their
    defaults. They are part of a table's cache key."""

    format: str = DataConfig.format
    text_column: int | str | list[int | str] | None = DataConfig.text_column
    text_pair_column: int | str | None = DataConfig.text_pair_column
    label_column: int | str | None = DataConfig.label_column
    header: bool | None = DataConfig.header
    encoding: str = DataConfig.encoding
    quoting: str = DataConfig.quoting
    remove_spaces: bool = DataConfig.remove_spaces
    limit: int | None = DataConfig.limit
    task: str = DataConfig.task
    label_separator: str | None = DataConfig.label_separator
    label_columns: list[str] | None = DataConfig.label_columns
    label_hierarchy: str | None = DataConfig.label_hierarchy

    @classmethod
    def of(cls, config: DataConfig) -> ReadOptions:
        """Return those of a configuration."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})


class Chunk(NamedTuple):
    """Records, each a list of fields, an object, a text or a `BadRow`, and their numbers in the file."""

    numbers: list[int]
    records: list


def read_chunks(
    path: Source,
    options: ReadOptions,
    columns: Collection[int | None] | None = None,
    span: Span | None = None,
) -> Iterator[Chunk]:
    """Yield the records of a file, or of its `span`, whose `options.format` is known.

    `columns` are those in use: values of other Parquet columns are None; None: all are in use. Raises
    InputError for a file that cannot be read at all. Holds the whole file only where the format leaves no
    choice.
    """
    format = FORMATS[options.format]
    if options.format == "parquet":
        return _parquet_chunks(path, columns, span)
    if options.format == "xlsx":
        return _excel_chunks(path)
    if options.format == "json":
        return _array_chunks(path, options.encoding)
    if options.format == "jsonl":
        return _json_line_chunks(path, options.encoding, span)
    if format.delimiter and is_quoted(options):
        return _quoted_chunks(path, options.encoding, format.delimiter, span)
    return _plain_chunks(path, options.encoding, format.delimiter, span)


def is_quoted(options: ReadOptions) -> bool:
    """Return whether double quotes may enclose fields."""
    return options.quoting == "double" or (options.quoting == "auto" and FORMATS[options.format].is_quoted)


def _plain_chunks(path: Source, encoding: str, delimiter: str, span: Span | None) -> Iterator[Chunk]:
    """Yield lines that are not blank, without their line ends, cut at each delimiter if there is one. A
    carriage return inside a line may be a line end: reading the line as one row could join many rows."""
    for first, lines in read_lines(path, encoding, span):
        lines = [line.rstrip("\r\n") for line in lines]
        if "\r" not in "".join(lines) and all(map(str.strip, lines)):
            records = [line.split(delimiter) for line in lines] if delimiter else lines
            yield Chunk(list(range(first, first + len(lines))), records)
            continue
        numbers, records = [], []
        for number, line in enumerate(lines, first):
            stripped = line.strip(" \r")
            if "\r" in stripped:
                problem = f"a carriage return is inside the line: {excerpt(line)}; end lines with LF or CRLF"
                records.append(BadRow(number, problem))
            elif stripped if delimiter else line.strip():
                records.append(line.split(delimiter) if delimiter else line)
            else:
                continue
            numbers.append(number)
        yield Chunk(numbers, records)


def _quoted_chunks(path: Source, encoding: str, delimiter: str, span: Span | None) -> Iterator[Chunk]:
    csv.field_size_limit(FIELD_LIMIT)
    num_blocks = num_done = 0

    def read() -> Iterator[str]:
        nonlocal num_blocks
        for _number, lines in read_lines(path, encoding, span):
            num_blocks += 1
            yield from lines

    reader = csv.reader(read(), delimiter=delimiter, strict=True)
    start = span.line if span else 1
    numbers, records = [], []
    while True:
        first = reader.line_num + start
        try:
            record = next(reader)
            if record:
                numbers.append(first)
                records.append(record)
        except StopIteration:
            break
        except csv.Error as error:
            following = reader.line_num + start
            numbers += range(first, following)
            records.append(BadRow(first, _csv_problem(str(error), first, following - 1)))
            # None of these lines can be read: each counts
            part = f"part of the invalid record that begins in line {first}"
            records += [BadRow(line, part) for line in range(first + 1, following)]
        if num_blocks > num_done:
            # Long texts make short chunks
            yield Chunk(numbers, records)
            numbers, records, num_done = [], [], num_blocks
    yield Chunk(numbers, records)


def _csv_problem(error: str, first: int, last: int) -> str:
    if error.startswith("new-line character"):
        return (
            "a carriage return is outside quotes; end lines with LF or CRLF, or enclose the text in double "
            "quotes"
        )
    record = _("the record")
    if last > first:
        record = _("the record from line {first} to {last}").format(first=first, last=last)
    return _(
        "{record} is not valid CSV ({error}); double the quotes inside quoted fields, or set --data.quoting "
        "none if quotes are part of the text"
    ).format(record=record, error=error)


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=unique_keys)


def _json_line_chunks(path: Source, encoding: str, span: Span | None) -> Iterator[Chunk]:
    for first, lines in read_lines(path, encoding, span):
        numbers, records = [], []
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            numbers.append(number)
            try:
                records.append(_parse_json(line))
            except JSON_ERRORS as error:
                problem = f"not a valid JSON value ({error}): {excerpt(line)}"
                records.append(BadRow(number, f"{problem}; each line must be one object or array"))
        yield Chunk(numbers, records)


def _array_chunks(path: Source, encoding: str) -> Iterator[Chunk]:
    text = "".join(chain.from_iterable(lines for _number, lines in read_lines(path, encoding)))
    try:
        value = _parse_json(text)
    except json.JSONDecodeError as error:
        near = excerpt(text[error.pos :]) if text[error.pos :].strip() else "the end of the file"
        remedy = "fix the file there"
        # Values one after another
        if error.msg == "Extra data":
            remedy = "make one array of the values: [ before the first, a comma between two, ] after the last"
            if (error.lineno, error.colno) == (2, 1):
                remedy = "it looks like JSON Lines, set --data.format jsonl"
        raise InputError(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg} at column {error.colno}), found "
            f"{near}; {remedy}"
        ) from error
    except JSON_ERRORS as error:
        raise InputError(f"{path}: JSON that cannot be read ({error}); fix the file") from error
    try:
        rows = _rows_of(value)
    except ValueError as error:
        raise InputError(f"{path}: one array of rows is needed, found {error}") from error
    if rows is None:
        raise InputError(
            f"{path}: an array of pairs or of objects is needed, found {excerpt(value)}; put the rows into "
            'one array (pandas: df.to_json(path, orient="records")), or one a line and set --data.format '
            "jsonl"
        )
    yield from _cut_in_chunks(rows)


def _cut_in_chunks(rows: list) -> Iterator[Chunk]:
    for start in range(0, len(rows), CHUNK):
        records = rows[start : start + CHUNK]
        yield Chunk(list(range(start + 1, start + 1 + len(records))), records)


def _rows_of(value: Any) -> list | None:
    """Return the rows in a JSON value: an array, or the only array of rows inside an object; else None.
    Raises ValueError, saying which, for an object with several arrays of rows."""
    if not isinstance(value, dict):
        return value if isinstance(value, list) else None
    arrays = {key: inner for key, inner in value.items() if _is_rows(inner)}
    if len(arrays) > 1:
        raise ValueError(f"several arrays of rows, {', '.join(arrays)}; write each into a separate file")
    return next(iter(arrays.values()), None)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, (list, dict)) for row in value)


def parquet_schema(path: Path) -> Any:
    """Return the Arrow schema of a Parquet file; raises InputError for a file that is not Parquet."""
    from pyarrow import parquet

    with _readable_parquet(path), path.open("rb") as file:
        return parquet.read_schema(file)


def num_parquet_rows(path: Path) -> int:
    """Return the number of rows in the footer; raises InputError for a file that is not Parquet."""
    from pyarrow import parquet

    with _readable_parquet(path), path.open("rb") as file:
        return parquet.read_metadata(file).num_rows


def _parquet_chunks(path: Path, columns: Collection[int | None] | None, span: Span | None) -> Iterator[Chunk]:
    """Yield the rows. Values of a type that Python does not have, such as dates after 9999, come as text."""
    from pyarrow import parquet

    number = (span.line if span else 1) - 1
    with _readable_parquet(path), path.open("rb") as opened:
        file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
        for batch in parquet_batches(path, file, span):
            none = [None] * batch.num_rows
            values = [
                _python_values(column) if columns is None or index in columns else none
                for index, column in enumerate(batch.columns)
            ]
            numbers = list(range(number + 1, number + 1 + batch.num_rows))
            yield Chunk(numbers, list(map(list, zip(*values, strict=True))))
            number += batch.num_rows
        num_rows = file.metadata.num_rows if span is None else span.end
    if number != num_rows:
        raise InputError(
            f"{path}: the Parquet file is damaged: its footer says {num_rows:,} rows, found {number:,}; "
            "write it again"
        )


def parquet_batches(path: Path, file: Any, span: Span | None = None) -> Iterator[Any]:
    """Yield the rows of an open Parquet file, or those in `span`, as batches; other groups of rows are not
    read. Raises InputError where it cannot be read."""
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    start, end = span[:2] if span else (0, math.inf)
    groups, at, first = [], 0, None
    for group, size in enumerate(sizes):
        if at < end and at + size > start:
            first = at if first is None else first
            groups.append(group)
        at += size
    at = first or 0
    with _readable_parquet(path):
        for batch in file.iter_batches(PARQUET_BATCH, row_groups=groups if span else None):
            low, high = max(start - at, 0), min(end - at, batch.num_rows)
            at += batch.num_rows
            if low < high:
                yield batch.slice(low, high - low)
            if at >= end:
                return


def _python_values(column: Any) -> list:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return column.cast("string").to_pylist()


@contextmanager
def _readable_parquet(path: Path) -> Iterator[None]:
    from pyarrow import ArrowException

    try:
        yield
    except InputError:
        raise
    except (ArrowException, *PARQUET_ERRORS) as error:
        raise InputError(f"{path}: not a readable Parquet file: {shorten(str(error), 200)}") from error


def _excel_chunks(path: Path) -> Iterator[Chunk]:
    """Yield the rows of the only sheet with values that are not empty, each as wide as the first one; their
    numbers are those of the sheet. Formulas have their values; an empty cell is None."""
    try:
        sheets = _excel_sheets(path)
    except BaseException as error:  # also panics of Rust
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        message = shorten(str(error) or type(error).__name__, 200)
        raise InputError(
            f"{path}: not a readable Excel file: {message}; open it in Excel and save it again as .xlsx "
            "without a password, or as CSV (UTF-8)"
        ) from error
    filled = {name: rows for name, rows in sheets.items() if rows}
    if not filled:
        raise InputError(f"{path}: there are no rows, its {len(sheets)} sheet(s) are empty")
    if len(filled) > 1:
        raise InputError(
            f"{path}: one sheet with values is needed, found {listed(filled)}; save the one to read as a "
            "separate file"
        )
    [rows] = filled.values()
    width = len(next(iter(rows.values())))
    yield Chunk(list(rows), [(cells + [None] * (width - len(cells)))[:width] for cells in rows.values()])


def _excel_sheets(path: Path) -> dict[str, dict[int, list]]:
    """Return the rows with values of each sheet, by their numbers; a damaged file raises anything."""
    from python_calamine import CalamineWorkbook

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            size = sum(entry.file_size for entry in file.infolist())
        if size > ALWAYS_UNPACKED + MAX_EXPANSION * os.path.getsize(path):
            raise ValueError(f"it would take {size:,} bytes when unpacked")
    sheets = {}
    # Given a path, calamine wants its own endings
    with path.open("rb") as file, CalamineWorkbook.from_filelike(file) as book:
        for name in book.sheet_names:
            rows = sheets[name] = {}
            for number, row in enumerate(book.get_sheet_by_name(name).to_python(skip_empty_area=False), 1):
                cells = list(map(_excel_value, row))
                while cells and cells[-1] is None:
                    cells.pop()
                if cells:
                    rows[number] = cells
    return sheets


def _excel_value(cell: Any) -> Any:
    """Return None for an empty cell; all numbers come as floats."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return None if isinstance(cell, str) and not cell.strip() else cell


def file_format(path: Source, format: str, encoding: str) -> str:
    """Return the format of `path`: as given, or by its content, or by the ending of its name; of a table,
    by the separator that gives all of its first lines the same number of fields."""
    if format != "auto":
        return format
    by_content = content_format(path, encoding) or separated_format(path, encoding)
    recognised = by_content or SUFFIXES.get(path.suffix.lower())
    if recognised is None:
        # A more useful error for a compressed file
        check_file(path, "auto", encoding)
        raise InputError(
            _(
                "{path}: cannot tell the format from the file's name (known endings: {endings}); set "
                "--data.format"
            ).format(path=path, endings=", ".join(SUFFIXES))
        )
    return recognised


def content_format(path: Source, encoding: str) -> str | None:
    """Return the format that the first bytes of a file show, whatever its name; None where they show none.
    None also for a stream, which is not waited for. Raises InputError for a file that cannot be read."""
    codec = codec_name(encoding)
    if isinstance(path, Stream):
        return None
    content, text = _start_of(path, codec)
    if content.startswith(FORMATS["parquet"].magic):
        return "parquet"
    if content.startswith(FORMATS["xlsx"].magic) and _is_workbook(path, content):
        return "xlsx"
    is_strict = SUFFIXES.get(path.suffix.lower()) not in ("json", "jsonl")
    return None if text is None else json_layout(text, len(content) < START, is_strict)


def _is_workbook(path: Path, content: bytes) -> bool:
    if not content.startswith(b"PK"):
        return path.suffix.lower() == ".xls"
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
            return any(name.startswith("xl/") for name in names) or (
                "mimetype" in names and b"opendocument.spreadsheet" in file.read("mimetype")
            )
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False


def separated_format(path: Source, encoding: str) -> str | None:
    """Return the format of a table whose separator is not that of its name, else None: that of the name gives
    no columns, and the other one the same number in each of the first lines."""
    named = SUFFIXES.get(path.suffix.lower())
    if named is None or not FORMATS[named].delimiter or isinstance(path, Stream):
        return None
    content, text = _start_of(path, codec_name(encoding))
    lines = (text or "").splitlines()
    # The last one may be cut
    lines = [line for line in (lines if len(content) < START else lines[:-1])[:SEEN_LINES] if line.strip()]
    others = [name for name, format in FORMATS.items() if format.delimiter and name != named]
    try:
        # One column, or lines that differ
        if len(lines) < 2 or _num_fields(named, lines) > 1:
            return None
        return next((name for name in others if _num_fields(name, lines) > 1), None)
    except csv.Error:
        return None


def _num_fields(format: str, lines: list[str]) -> int:
    """Return how many fields each of these lines has, 0 where they do not all have the same number."""
    delimiter = FORMATS[format].delimiter
    if FORMATS[format].is_quoted:
        # Only some lines: a quote may stay open
        counts = {len(record) for record in csv.reader(lines, delimiter=delimiter) if record}
    else:
        counts = {line.count(delimiter) + 1 for line in lines}
    return counts.pop() if len(counts) == 1 else 0


def _start_of(path: Path, codec: str) -> tuple[bytes, str | None]:
    """Return the first bytes of a file, and the same decoded."""
    content = read_start(path, START)
    try:
        return content, codecs.getincrementaldecoder(codec)(errors="replace").decode(content)
    except UnicodeError:
        # Some encodings cannot replace what they do not know
        return content, None


def json_layout(start: str, is_whole: bool, strict: bool) -> str | None:
    """Return `json` for one value, `jsonl` for one a line, None where the start of a file does not show it.
    `is_whole`: `start` is the whole file. `strict`: the file may be texts that begin with brackets."""
    start = start.removeprefix("\ufeff").lstrip()
    if not start.startswith(("[", "{")):
        return None
    first, _, rest = start.partition("\n")
    try:
        value = json.loads(first)
    except json.JSONDecodeError as error:
        # Then it may also be a long first line of many
        is_cut_off = "\n" not in start and not is_whole
        is_unfinished = error.pos >= len(first.rstrip()) and (not is_whole or start.rstrip().endswith("}"))
        return "json" if _begins_rows(start, is_unfinished and not is_cut_off) else None
    except JSON_ERRORS:
        return None
    if strict and not (
        value and (isinstance(value, dict) or any(isinstance(item, (str, dict, list)) for item in value))
    ):
        return None
    if rest.strip():
        return "jsonl" if rest.lstrip().startswith(("[", "{")) else None
    try:
        rows = _rows_of(value)
    except ValueError:
        return "json"
    if isinstance(value, dict):
        return "json" if rows is not None else "jsonl" if strict else None
    # One line may also be an array of one row, or of texts
    return "json" if _is_rows(rows) else None


def _begins_rows(start: str, goes_on: bool) -> bool:
    """Return whether an incomplete value begins like an array of rows, or an object that has one. `goes_on`:
    it surely continues in the next line, so it may be any object."""
    inner = start[1:].lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(inner)
    except JSON_ERRORS:
        return False
    following = inner[end:].lstrip()
    if start[0] == "[":
        return isinstance(value, (list, dict)) and bool(value) and following.startswith((",", "]"))
    is_object = isinstance(value, str) and following.startswith(":")
    return is_object and (goes_on or following[1:].lstrip().startswith(("[", "{")))


def check_readable(path: Source, options: ReadOptions) -> None:
    """Raise InputError for a file of another format, and where the library that reads it is missing."""
    check_file(path, options.format, options.encoding)
    library = FORMATS[options.format].library
    if library and find_spec(library) is None:
        package = library.replace("_", "-")
        raise InputError(
            f"{path}: {options.format} files need {package}; install it with: pip install {package}"
        )


def named_rows(
    path: Path, options: ReadOptions, check_names: Callable[[str, list[str]], None]
) -> Iterator[tuple[int, dict]]:
    """Yield number and values by column name of each row of a file of objects, or with a header, whose place
    and names `check_names` gets. Raises InputError, with the place, for what is no row."""
    check_readable(path, options)
    names: list[str] | None = None
    for chunk in read_chunks(path, options):
        for number, record in zip(*chunk, strict=True):
            where = f"{path}, {FORMATS[options.format].row_unit} {number}"
            if isinstance(record, BadRow):
                raise InputError(f"{where}: {record.problem}")
            if isinstance(record, list) and names is None:
                names = [str(value).strip() for value in record]
                check_names(where, names)
                continue
            if not isinstance(record, (list, dict)) or (
                isinstance(record, list) and len(record) != len(names)
            ):
                needed = f"a row of {len(names)} columns as in the header" if names else "an object"
                raise InputError(f"{where}: {needed} is needed, found {excerpt(record)}; correct the row")
            yield number, record if isinstance(record, dict) else dict(zip(names, record, strict=True))
