"""The formats of data files: how they are recognised, and their records, in chunks."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, shorten
from ..runtime.disk import unique_keys
from ..words import _
from .files import MAGIC, Source, Stream, file_encoding, read_lines, read_start

START, SEEN_LINES = 1 << 20, 500  # bytes, and lines in them, from which the format is recognised
CHUNK = 2048  # records of Parquet and of quoted tables that are read together
BUFFER = 1 << 20  # bytes of a Parquet column read at once, so that a large group of rows is not held
FIELD_LIMIT = 1 << 26  # characters; csv's own limit of 131,072 is too low for long documents
LABEL_SETTINGS = {"label_column", "label_separator", "label_columns"}
# ValueError is more than JSONDecodeError: an integer may have too many digits
JSON_ERRORS = (ValueError, RecursionError)
# JSON that is no JSON Lines begins so: it is an array of rows, or an object of several lines
JSON_START = re.compile(r'\[\s*[\[{]|\{\s*\n\s*"')


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
        """Return those of a configuration."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    @property
    def is_quoted(self) -> bool:
        """Whether double quotes may enclose fields."""
        format = FORMATS[self.format]
        wanted = format.is_quoted if self.quoting == "auto" else self.quoting == "double"
        return bool(format.delimiter) and wanted


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False


# The numbers of records in their file, and the records: lists of fields, objects, texts, or `BadRow`s
Chunk = tuple[list[int], list]


def bad_row_message(path: object, unit: str, number: int, problem: object) -> str:
    """Return a problem of a row with its place; `unit` is what the number counts, as in `FileFormat`, or
    text."""
    texts = {
        "line": _("{path}, line {number}: {problem}"),
        "row": _("{path}, row {number}: {problem}"),
        "element": _("{path}, element {number}: {problem}"),
        "text": _("{path}, text {number}: {problem}"),
    }
    return texts[unit].format(path=path, number=number, problem=problem)


def options_of_run(
    path: Source,
    recorded: Mapping[str, Any],
    asked: Mapping[str, Any] | None = None,
    need_label: bool = False,
) -> ReadOptions:
    """Return the settings with which the model of a run reads a file; `format` is never auto. `recorded` are
    the `data` settings of the run's config.yaml. `asked` are those that were asked for now; None and auto
    were not. Without `need_label`, the settings of labels are left out. Raises InputError as `recognised`."""
    asked = {name: value for name, value in (asked or {}).items() if value not in (None, "auto")}
    # The recorded format and limit are those of the train file only
    replaced = {"format", "limit"} | (LABEL_SETTINGS if asked.keys() & LABEL_SETTINGS else set())
    known = {name: value for name, value in recorded.items() if name not in replaced and value is not None}
    names = {field.name for field in fields(ReadOptions)} - (set() if need_label else LABEL_SETTINGS)
    options = ReadOptions(**{name: value for name, value in (known | asked).items() if name in names})
    if isinstance(path, Stream):
        return replace(options, format=asked.get("format", "text"))
    train, format, suffix = recorded.get("train") or "", recorded.get("format"), path.suffix.lower()
    is_alike = suffix == Path(train if isinstance(train, str) else train[0]).suffix.lower()
    is_usual = format in DELIMITED and (is_alike or suffix not in SUFFIXES)
    return recognised(path, options, need_label, is_alike, format if is_usual else None)


def recognised(
    path: Source,
    options: ReadOptions,
    need_label: bool = True,
    is_alike: bool = False,
    usual: str | None = None,
) -> ReadOptions:
    """Return the settings with the encoding and the format that a file has, in place of utf-8 and auto, and
    with its quoting. The format is that of its content, else the `usual` one, else that of its name. Without
    labels a .txt file has one text a line, unless it is named as the train file (`is_alike`) and its first
    line has a tab. Raises InputError for a file that cannot be read, or begins otherwise than its format."""
    encoding, format, suffix = file_encoding(path, options.encoding), options.format, path.suffix.lower()
    start, lines, by_name = read_start(path, START), [], SUFFIXES.get(suffix)
    if not isinstance(path, Stream) and not start.startswith(MAGIC):
        text = codecs.getincrementaldecoder(encoding)("replace").decode(start).removeprefix("\ufeff")
        # The last line may be cut
        found = re.split("\r\n?|\n", text)[: None if len(start) < START else -1] or [text]
        lines = [line for line in found[:SEEN_LINES] if line.strip()]
    if format == "auto":
        has_tabs = is_alike and "\t" in "".join(lines[:1])
        is_plain = suffix == ".txt" and not need_label
        format = content_format(start, lines, by_name, is_alike or not is_plain) or usual
        format = format or ("text" if is_plain and not has_tabs else by_name)
    magic = FORMATS[format].magic if format else ()
    if isinstance(path, Stream) and magic:
        raise InputError(f"{path}: {format} files cannot be read from a stream; save it to a file first")
    if start.startswith(MAGIC) and not start.startswith(magic):
        said = _(
            "{path}: {needed} is needed, found a packed file, a workbook, Parquet or UTF-32; unpack it, save "
            "it as CSV (UTF-8), or set --data.format"
        )
        raise InputError(said.format(path=path, needed=format if magic else "text"))
    if format is None:
        said = _("{path}: cannot tell the format (known endings of names: {endings}); set --data.format")
        raise InputError(said.format(path=path, endings=", ".join(SUFFIXES)))
    if format in DELIMITED and options.quoting == "auto":
        # Programs that write quotes around fields do so in each line, or double those inside; the first line
        # may be a header without
        cells = [cell for line in lines[1:] or lines for cell in line.split(FORMATS[format].delimiter)]
        enclosed = [cell[1:-1] for cell in cells if len(cell) > 1 and cell[0] == cell[-1] == '"']
        if len(enclosed) >= max(1, len(lines) - 1) or any('""' in cell for cell in enclosed):
            options = replace(options, quoting="double")
    return replace(options, encoding=encoding, format=format)


def content_format(start: bytes, lines: list[str], named: str | None, may_be_table: bool) -> str | None:
    """Return the format that the beginning of a file shows, also another one than it is `named`, or None."""
    if start.startswith(FORMATS["parquet"].magic):
        return "parquet"
    if start.startswith(b"PK") and (b"xl/w" in start or b"opendocument.spreadsheet" in start[:100]):
        return "xlsx"
    layout = json_layout("\n".join(lines), has_name=named in ("json", "jsonl"))
    # Toutiao separates by _!_, and has commas in the last column
    is_other = named not in DELIMITED or len(lines) < 2 or "_!_" in lines[0]
    if layout or not may_be_table or is_other:
        return layout
    # One column, or lines that differ, show that the name's separator is not the right one
    return next((name for name in (named, *DELIMITED) if _num_fields(name, lines) > 1), None)


def _num_fields(format: str, lines: list[str]) -> int:
    """Return how many fields each of these lines has, 0 where they do not all have the same number."""
    quoting = csv.QUOTE_MINIMAL if FORMATS[format].is_quoted else csv.QUOTE_NONE
    try:
        records = csv.reader(lines, delimiter=FORMATS[format].delimiter, quoting=quoting)
        counts = {len(record) for record in records if record}
    except csv.Error:
        return 0
    return counts.pop() if len(counts) == 1 else 0


def json_layout(start: str, has_name: bool = False) -> str | None:
    """Return `json` for one value, `jsonl` for one a line, None where the first lines of a file do not show
    it: texts may begin with brackets too. `has_name`: its name says that it is one of the two."""
    line, _end, rest = start.strip().partition("\n")
    try:
        value = json.loads(line)
    except JSON_ERRORS:
        return "json" if JSON_START.match(start.strip()) else None
    is_row = isinstance(value, (list, dict)) and any(isinstance(one, (str, dict, list)) for one in value)
    if rest or not is_row:
        return "jsonl" if is_row and rest.lstrip().startswith(("[", "{")) else None
    if isinstance(value, dict):
        return None if has_name else "jsonl"
    # One line may also be an array of one row, or of texts
    return "json" if all(isinstance(row, (list, dict)) for row in value) else None


def read_chunks(
    path: Source, options: ReadOptions, columns: Collection[int] | None = None
) -> Iterator[Chunk]:
    """Yield the records of a file whose format and encoding are known. Values of Parquet columns that are not
    in `columns` are None. Raises InputError for a file that cannot be read at all."""
    if options.format == "parquet":
        return _parquet_chunks(path, columns)
    if options.format == "xlsx":
        return _excel_chunks(path)
    blocks, delimiter = read_lines(path, options.encoding), FORMATS[options.format].delimiter
    if options.format == "json":
        return _array_chunks(path, blocks)
    if options.format == "jsonl":
        return _json_line_chunks(blocks)
    if options.is_quoted:
        return _quoted_chunks(blocks, delimiter, 1 if isinstance(path, Stream) else CHUNK)
    return _plain_chunks(blocks, delimiter)


def _plain_chunks(blocks: Iterator[tuple[int, list[str]]], delimiter: str) -> Iterator[Chunk]:
    # A line of tabs only is a row of empty fields
    blanks = " " if delimiter else None
    for first, lines in blocks:
        numbers, lines = range(first, first + len(lines)), [line.rstrip("\r\n") for line in lines]
        if not all(map(str.strip, lines)):
            kept = [at for at, line in enumerate(lines) if line.strip(blanks)]
            numbers, lines = [numbers[at] for at in kept], [lines[at] for at in kept]
        yield list(numbers), [line.split(delimiter) for line in lines] if delimiter else lines


def _quoted_chunks(
    blocks: Iterator[tuple[int, list[str]]], delimiter: str, num_records: int
) -> Iterator[Chunk]:
    csv.field_size_limit(FIELD_LIMIT)
    lines = chain.from_iterable(lines for _first, lines in blocks)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    numbers, records = [], []
    while True:
        first = reader.line_num + 1
        try:
            if record := next(reader):
                numbers.append(first)
                records.append(record)
        except StopIteration:
            break
        except csv.Error as error:
            # None of the lines of this record can be read, and each counts as a row
            following = reader.line_num + 1
            numbers += range(first, following)
            problem = _(
                "the record from line {first} to {last} is not valid CSV ({error}); double the quotes in "
                "quoted fields, or set --data.quoting none if quotes are part of the text"
            ).format(first=first, last=following - 1, error=str(error).partition(" - ")[0])
            records += [BadRow(line, problem) for line in range(first, following)]
        if len(records) >= num_records:
            yield numbers, records
            numbers, records = [], []
    yield numbers, records


def _json_line_chunks(blocks: Iterator[tuple[int, list[str]]]) -> Iterator[Chunk]:
    for first, lines in blocks:
        numbers, records = [number for number, line in enumerate(lines, first) if line.strip()], []
        for number in numbers:
            line = lines[number - first]
            try:
                records.append(json.loads(line, object_pairs_hook=unique_keys))
            except JSON_ERRORS as error:
                problem = f"not a valid JSON value ({error}): {excerpt(line)}"
                records.append(BadRow(number, f"{problem}; each line must be one object or array"))
        yield numbers, records


def _array_chunks(path: Source, blocks: Iterator[tuple[int, list[str]]]) -> Iterator[Chunk]:
    text = "".join(chain.from_iterable(lines for _first, lines in blocks))
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except JSON_ERRORS as error:
        where = f"{path}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else path
        remedy = "fix the file there, or set --data.format jsonl where each line is a value"
        raise InputError(f"{where}: JSON that cannot be read ({error}); {remedy}") from error
    if not isinstance(value, list):
        raise InputError(
            f"{path}: an array of pairs or of objects is needed, found {excerpt(value)}; write the rows as "
            'one (pandas: df.to_json(path, orient="records")), or one a line, as .jsonl'
        )
    yield list(range(1, len(value) + 1)), value


@contextmanager
def _readable_parquet(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - pyarrow raises many for bytes that are not Parquet
        raise InputError(f"{path}: not a readable Parquet file: {shorten(str(error), 200)}") from error


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file; raises InputError for any other file."""
    from pyarrow import parquet

    with _readable_parquet(path), path.open("rb") as file:
        return parquet.read_schema(file).names


def parquet_batches(path: Path, file: Any) -> Iterator[Any]:
    """Yield the rows of an open Parquet file as record batches; raises InputError where they cannot be
    read."""
    with _readable_parquet(path):
        yield from file.iter_batches(CHUNK)


def _parquet_chunks(path: Path, columns: Collection[int] | None) -> Iterator[Chunk]:
    from pyarrow import parquet

    number = 0
    with _readable_parquet(path), path.open("rb") as opened:
        file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
        for batch in file.iter_batches(CHUNK):
            values = [[None] * batch.num_rows] * batch.num_columns
            for index in range(batch.num_columns) if columns is None else columns:
                values[index] = batch.column(index).to_pylist()
            numbers = list(range(number + 1, number + 1 + batch.num_rows))
            yield numbers, list(map(list, zip(*values, strict=True)))
            number += batch.num_rows
        if file.metadata.num_rows != number:
            problem = f"its footer says {file.metadata.num_rows:,} rows, found {number:,}; write it again"
            raise InputError(f"{path}: the Parquet file is damaged: {problem}")


def _excel_chunks(path: Path) -> Iterator[Chunk]:
    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(f"{path}: Excel files need a package: pip install python-calamine") from error
    try:
        # Given a path, calamine accepts its own endings of names only
        with path.open("rb") as file, CalamineWorkbook.from_filelike(file) as book:
            names = book.sheet_names
            sheets = [book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in names]
    except BaseException as error:  # also panics of Rust
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        problem = shorten(str(error) or type(error).__name__, 200)
        remedy = "save it again as .xlsx without a password, or as CSV (UTF-8)"
        raise InputError(f"{path}: not a readable Excel file: {problem}; {remedy}") from error
    filled = {}
    for name, cells in zip(names, sheets, strict=True):
        rows = {number: list(map(_excel_value, row)) for number, row in enumerate(cells, 1)}
        filled[name] = {number: row for number, row in rows.items() if row != [None] * len(row)}
    found = [name for name in names if filled[name]]
    if len(found) != 1:
        found = f"{listed(found) or 'none'}; save the one to read as a separate file"
        raise InputError(f"{path}: one sheet with values is needed, found {found}")
    rows = filled[found[0]]
    first = next(iter(rows.values()))
    width = max(number for number, cell in enumerate(first, 1) if cell is not None)
    yield list(rows), [row[:width] for row in rows.values()]


def _excel_value(cell: Any) -> Any:
    # All numbers come as floats
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return None if isinstance(cell, str) and not cell.strip() else cell
