"""The formats of data files: how they are recognised, and their records."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields, replace
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple

from ..config.schema import DataConfig
from ..errors import InputError, as_input_error, excerpt, listed
from ..runtime.disk import unique_keys
from ..words import _
from .files import BLOCK_ROWS, MAGIC, Source, Stream, file_encoding, line_blocks, read_start

FIRST_LINES = 500  # lines that show the format of a file
BUFFER = 1 << 20  # bytes of a Parquet column read at once, so that a large group of rows is not held
FIELD_LIMIT = 1 << 26  # characters; csv's own limit of 131,072 is too low for long documents
# ValueError is more than JSONDecodeError: an integer may have too many digits
JSON_ERRORS = (ValueError, RecursionError)
# JSON that is no JSON Lines begins so: it is an array of rows, or an object of several lines
JSON_START = re.compile(r'\s*(\[\s*[\[{]|\{\s*\n\s*")')


class FileFormat(NamedTuple):
    """`suffixes`: endings of names that stand for it. `row_unit`: what the number of a row counts.
    `delimiter` is between two fields of a line, `is_quoted`: double quotes may enclose them. `has_header`:
    the first row may have the names of the columns. `magic`: the bytes with which a file begins that is no
    text; it has no encoding, and cannot be a stream."""

    suffixes: tuple[str, ...] = ()
    row_unit: str = "line"
    delimiter: str = ""
    is_quoted: bool = False
    has_header: bool = False
    magic: tuple[bytes, ...] = ()


# The keys are values of data.format
FORMATS = {
    "csv": FileFormat((".csv",), delimiter=",", is_quoted=True, has_header=True),
    "tsv": FileFormat((".tsv", ".txt", ".tab"), delimiter="\t", has_header=True),
    "semicolon": FileFormat(delimiter=";", is_quoted=True, has_header=True),
    "pipe": FileFormat(delimiter="|", has_header=True),
    "json": FileFormat((".json",), "element"),
    "jsonl": FileFormat((".jsonl", ".ndjson")),
    "parquet": FileFormat((".parquet", ".pq"), "row", magic=(b"PAR1\x15",)),
    "xlsx": FileFormat(
        (".xlsx", ".xlsm", ".xls", ".ods"), "row", has_header=True, magic=(b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
    ),
    "text": FileFormat(),
}
SUFFIXES = {suffix: name for name, format in FORMATS.items() for suffix in format.suffixes}
DELIMITED = tuple(name for name, format in FORMATS.items() if format.delimiter)


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
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False


# Records, and before them their numbers in the file: lists of fields, objects, texts, or a `BadRow`
Block = tuple[Sequence[int], Sequence[Any]]


def bad_row_message(path: object, unit: str, number: int, problem: object) -> str:
    """Return a problem of a row with its place; `unit` is what the number counts, a key of `texts`."""
    texts = {
        "line": _("{path}, line {number}: {problem}"),
        "row": _("{path}, row {number}: {problem}"),
        "element": _("{path}, element {number}: {problem}"),
        "text": _("{path}, text {number}: {problem}"),
    }
    return texts[unit].format(path=path, number=number, problem=problem)


def recognised(
    path: Source, options: ReadOptions, need_label: bool = True, usual: str | None = None
) -> ReadOptions:
    """Return the settings with the encoding, the format and the quoting that a file has, in place of utf-8
    and auto. The format is that of its content, else the `usual` one: None is that of its name, but without
    labels a .txt file has one text a line, as a stream has. Raises InputError for a file that cannot be read,
    or begins otherwise than its format."""
    encoding, format, start = file_encoding(path, options.encoding), options.format, read_start(path)
    is_stream, suffix, lines = isinstance(path, Stream), path.suffix.lower(), []
    if not is_stream and not start.startswith(MAGIC):
        lines = next(line_blocks(path, encoding), [])[:FIRST_LINES]
        lines = [line.rstrip("\r\n") for line in lines if line.strip()]
    if format == "auto":
        is_plain = is_stream or (suffix == ".txt" and not need_label)
        usual = usual or ("text" if is_plain else SUFFIXES.get(suffix))
        format = content_format(start, lines, usual) or usual
    magic = FORMATS[format].magic if format else ()
    if start.startswith(MAGIC) and not start.startswith(magic):
        said = _(
            "{path}: {needed} is needed, found a packed file, a workbook, Parquet or UTF-32; unpack it, save "
            "it as CSV (UTF-8), or set --data.format"
        )
        raise InputError(said.format(path=path, needed=format if magic else "text"))
    if format is None:
        said = _("{path}: cannot tell the format (known endings of names: {endings}); set --data.format")
        raise InputError(said.format(path=path, endings=", ".join(SUFFIXES)))
    if is_stream and magic:
        raise InputError(f"{path}: {format} files cannot be read from a stream; save it to a file first")
    delimiter, quoting = FORMATS[format].delimiter, options.quoting
    if quoting == "auto":
        # Programs that write quotes around fields do so in each line (but a header), or double those inside
        cells = [cell for line in lines[1:] or lines for cell in line.split(delimiter or None)]
        enclosed = [cell[1:-1] for cell in cells if len(cell) > 1 and cell[0] == cell[-1] == '"']
        is_quoted = len(enclosed) >= max(1, len(lines) - 1) or any('""' in cell for cell in enclosed)
        quoting = "double" if FORMATS[format].is_quoted or is_quoted else "none"
    return replace(options, encoding=encoding, format=format, quoting=quoting if delimiter else "none")


def content_format(start: bytes, lines: list[str], usual: str | None) -> str | None:
    """Return the format that the beginning of a file shows, also another one than the `usual`, or None."""
    if start.startswith(FORMATS["parquet"].magic):
        return "parquet"
    if start.startswith(b"PK") and (b"xl/w" in start or b"opendocument.spreadsheet" in start[:100]):
        return "xlsx"
    if JSON_START.match("\n".join(lines[:2])):
        return "json"
    with suppress(*JSON_ERRORS, IndexError):
        value = json.loads(lines[0])
        is_row = isinstance(value, (list, dict)) and any(isinstance(one, (str, dict, list)) for one in value)
        # Texts may begin with brackets too
        if is_row and all(line.lstrip().startswith(("[", "{")) for line in lines[1:2]):
            return usual if usual == "json" and len(lines) == 1 else "jsonl"
    # One column, or lines that differ, show that the name's separator is not the right one. Toutiao separates
    # by _!_, and has commas in the last column
    is_table = usual in DELIMITED and len(lines) > 1 and "_!_" not in lines[0]
    for name in (usual, *DELIMITED) if is_table else ():
        quoting = csv.QUOTE_MINIMAL if FORMATS[name].is_quoted else csv.QUOTE_NONE
        with suppress(csv.Error):
            widths = set(map(len, csv.reader(lines, delimiter=FORMATS[name].delimiter, quoting=quoting)))
            if len(widths) == 1 and widths != {1}:
                return name
    return None


def read_blocks(
    path: Source, options: ReadOptions, columns: Collection[int] | None = None
) -> Iterator[Block]:
    """Yield the records of a file whose format, encoding and quoting are known, many at a time; values of
    Parquet columns that are not in `columns` are None. Raises InputError for a file that cannot be read."""
    if options.format == "parquet":
        return _parquet_blocks(path, columns)
    blocks, delimiter = line_blocks(path, options.encoding), FORMATS[options.format].delimiter
    lines = chain.from_iterable(blocks)
    if options.format == "xlsx":
        records = _excel_records(path)
    elif options.format == "json":
        records = _array_records(path, lines)
    elif options.format == "jsonl":
        records = _json_line_records(lines)
    elif options.quoting == "double":
        records = _quoted_records(lines, delimiter)
    else:
        return _plain_blocks(blocks, delimiter)
    return iter(lambda: tuple(zip(*islice(records, BLOCK_ROWS), strict=True)), ())


def _plain_blocks(blocks: Iterator[list[str]], delimiter: str) -> Iterator[Block]:
    first = 1
    for lines in blocks:
        numbers, first = range(first, first + len(lines)), first + len(lines)
        if any(map(str.isspace, lines)):
            # A line of spaces is no row, but one of tabs is
            is_row = [line.strip(" \r\n" if delimiter else None) != "" for line in lines]
            numbers, lines = list(compress(numbers, is_row)), compress(lines, is_row)
        if delimiter:
            records = [line.rstrip("\r\n").split(delimiter) for line in lines]
        else:
            records = [line.rstrip("\r\n") for line in lines]
        if records:
            yield numbers, records


def _quoted_records(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(FIELD_LIMIT)
    reader, record = csv.reader(lines, delimiter=delimiter, strict=True), []
    while record is not None:
        first = reader.line_num + 1
        try:
            if record := next(reader, None):
                yield first, record
        except csv.Error as error:
            # None of the lines of this record can be read, and each counts as a row
            problem = _(
                "the record from line {first} to {last} is not valid CSV ({error}); double the quotes in "
                "quoted fields, or set --data.quoting none if quotes are part of the text"
            ).format(first=first, last=reader.line_num, error=str(error).partition(" - ")[0])
            for line in range(first, reader.line_num + 1):
                yield line, BadRow(line, problem)


def _json_line_records(lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                record = json.loads(line, object_pairs_hook=unique_keys)
            except JSON_ERRORS as error:
                problem = f"not a valid JSON value ({error}): {excerpt(line)}"
                record = BadRow(number, f"{problem}; each line must be one object or array")
            yield number, record


def _array_records(path: Source, lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    try:
        value = json.loads("".join(lines), object_pairs_hook=unique_keys)
    except JSON_ERRORS as error:
        where = f"{path}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else path
        remedy = "fix the file there, or set --data.format jsonl where each line is a value"
        raise InputError(f"{where}: JSON that cannot be read ({error}); {remedy}") from error
    if not isinstance(value, list):
        rule = f"an array of pairs or of objects is needed, found {excerpt(value)}"
        remedy = 'write one (pandas: df.to_json(path, orient="records")), or one row a line, as .jsonl'
        raise InputError(f"{path}: {rule}; {remedy}")
    yield from enumerate(value, 1)


def readable(path: Path) -> AbstractContextManager:
    """Return a context that raises InputError where a library cannot read a file."""
    remedy = "save it again, a workbook without a password, or save it as CSV (UTF-8)"
    return as_input_error(f"{path}: the file cannot be read", remedy)


def parquet_batches(path: Path) -> Iterator[Any]:
    """Yield the rows of a Parquet file as record batches."""
    from pyarrow import parquet

    number = 0
    with readable(path), path.open("rb") as opened:
        file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
        for batch in file.iter_batches(BLOCK_ROWS):
            number += batch.num_rows
            yield batch
        if file.metadata.num_rows != number:
            problem = f"its footer says {file.metadata.num_rows:,} rows, found {number:,}; write it again"
            raise InputError(f"{path}: the Parquet file is damaged: {problem}")


def _parquet_blocks(path: Path, columns: Collection[int] | None) -> Iterator[Block]:
    first = 1
    with readable(path):
        for batch in parquet_batches(path):
            values = [[None] * batch.num_rows] * batch.num_columns
            for index in range(batch.num_columns) if columns is None else columns:
                values[index] = batch.column(index).to_pylist()
            numbers, first = range(first, first + batch.num_rows), first + batch.num_rows
            yield numbers, list(map(list, zip(*values, strict=True)))


def _excel_records(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(f"{path}: Excel files need a package: pip install python-calamine") from error
    sheets = {}
    # Given a path, calamine accepts its own endings of names only
    with readable(path), path.open("rb") as file, CalamineWorkbook.from_filelike(file) as book:
        for name in book.sheet_names:
            rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
            for number, cells in enumerate(rows, 1):
                # All numbers come as floats
                row = [int(one) if isinstance(one, float) and one.is_integer() else one for one in cells]
                row = [None if isinstance(one, str) and not one.strip() else one for one in row]
                if row != [None] * len(row):
                    sheets.setdefault(name, []).append((number, row))
    if len(sheets) != 1:
        found = f"{listed(sheets) or 'none'}; save the one to read as a separate file"
        raise InputError(f"{path}: one sheet with values is needed, found {found}")
    [rows] = sheets.values()
    width = max(number for number, cell in enumerate(rows[0][1], 1) if cell is not None)
    yield from ((number, row[:width]) for number, row in rows)
