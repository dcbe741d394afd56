"""What a file is, encoding and format, by its settings, else by its content, else by its name; and its
records, in chunks."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, excerpt, listed, shorten
from ..runtime.disk import unique_keys
from ..words import _
from .columns import MIN_ROWS, check_separator
from .file_formats import FORMATS, SUFFIXES
from .files import (
    BadRow,
    ReadOptions,
    Source,
    Stream,
    check_file,
    codec_name,
    file_encoding,
    read_lines,
    read_start,
)

START = 1 << 20  # bytes from which the format is recognised
SEEN_LINES = 500  # lines from which the separator is recognised
FIRST_LINE = 1 << 16  # bytes in which the first line of a table ends
# Formats that are recognised by the name of a file, or by its lines
DELIMITED = tuple(name for name, format in FORMATS.items() if format.delimiter)
LABEL_SETTINGS = ("label_column", "label_separator", "label_columns")
LABEL_PREFIX = "__label__"  # of fastText
PARQUET_BATCH = 4096  # rows
BUFFER = 1 << 20  # bytes of a Parquet column read at once, so that a large group of rows is not held
# csv's own limit of 131,072 characters in a field is too low for long documents
FIELD_LIMIT = 1 << 26
# ValueError also: an integer of thousands of digits
JSON_ERRORS = (ValueError, RecursionError)
# What pyarrow raises for bytes that are not Parquet, and for values that Python does not have: dates after
# 9999, time zones.
PARQUET_ERRORS = (OSError, ValueError, OverflowError, LookupError, TypeError, MemoryError)


def bad_row_message(path: object, unit: str, number: int, problem: object) -> str:
    """Return a problem of a row with its place; `unit` is what the number counts."""
    texts = {
        "line": _("{path}, line {number}: {problem}"),
        "row": _("{path}, row {number}: {problem}"),
        "element": _("{path}, element {number}: {problem}"),
        "text": _("{path}, text {number}: {problem}"),
    }
    return texts[unit].format(path=path, number=number, problem=problem)


def recognised(path: Source, options: ReadOptions) -> ReadOptions:
    """Return settings with the encoding and the format of a file, where they are utf-8 and auto: the format
    of its content, else of its name. Raises InputError for a file that cannot be read, that begins otherwise
    than its format does, and where the library that reads it is missing."""
    encoding, format = file_encoding(path, options.encoding), options.format
    if format == "auto":
        format = content_format(path, encoding, with_separators=True) or SUFFIXES.get(path.suffix.lower())
    check_file(path, format or "auto", encoding)
    if format is None:
        raise InputError(
            _(
                "{path}: cannot tell the format from the file's name (known endings: {endings}); set "
                "--data.format"
            ).format(path=path, endings=", ".join(SUFFIXES))
        )
    if FORMATS[format].delimiter and not isinstance(path, Stream):
        lines = _first_lines(read_start(path, START), codec_name(encoding))
        if options.format == "auto" and len(lines) >= MIN_ROWS:
            check_separator(path, lines, format)
        if options.quoting == "auto" and _are_enclosed(lines, FORMATS[format].delimiter):
            options = replace(options, quoting="double")
    library = FORMATS[format].library
    if library and find_spec(library) is None:
        package = library.replace("_", "-")
        raise InputError(f"{path}: {format} files need {package}; install it with: pip install {package}")
    return replace(options, encoding=encoding, format=format)


def options_of_run(
    path: Source,
    recorded: Mapping[str, Any],
    asked: Mapping[str, Any] | None = None,
    need_label: bool = False,
) -> ReadOptions:
    """Return the settings with which a run reads a file again; `format` is never auto. `recorded` are the
    `data` settings of the run's config.yaml, `asked` those that were asked for now, None and auto if not.
    Without `need_label`, the settings of labels are left out."""
    asked = {name: value for name, value in (asked or {}).items() if value not in (None, "auto")}
    # Format and limit are those of the train file only
    known = {name: recorded[name] for name in recorded if name not in ("format", "limit")}
    if "label_columns" in asked:
        known = {name: value for name, value in known.items() if name not in LABEL_SETTINGS}
    elif {"label_column", "label_separator"} & set(asked):
        known.pop("label_columns", None)
    settings = {name: value for name, value in (known | asked).items() if value is not None}
    left_out = () if need_label else LABEL_SETTINGS
    names = {field.name for field in fields(ReadOptions)}.difference(left_out)
    options = ReadOptions(**{name: value for name, value in settings.items() if name in names})
    options = replace(options, encoding=file_encoding(path, options.encoding))
    if "format" in asked:
        return options
    if isinstance(path, Stream):
        return replace(options, format="text")
    suffix, format = path.suffix.lower(), recorded.get("format")
    train = recorded.get("train") or ""
    is_named_alike = suffix == Path(train if isinstance(train, str) else train[0]).suffix.lower()
    if by_content := content_format(path, options.encoding):
        return replace(options, format=by_content)
    if format in DELIMITED and (is_named_alike or suffix not in SUFFIXES):
        return replace(options, format=format)
    if suffix == ".txt" and not need_label:
        # Plain text, unless this file and that of the run are tables
        has_tabs = b"\t" in read_start(path, FIRST_LINE).split(b"\n")[0]
        is_table = has_tabs or content_format(path, options.encoding, with_separators=True)
        if not (is_named_alike and is_table):
            return replace(options, format="text")
    return recognised(path, options)


def content_format(path: Source, encoding: str, with_separators: bool = False) -> str | None:
    """Return the format that the first bytes of a file show, whatever its name, None where they show none;
    with `with_separators`, also by a separator that is not that of the name. A stream is not waited for."""
    codec = codec_name(encoding)
    if isinstance(path, Stream):
        return None
    content, named = read_start(path, START), SUFFIXES.get(path.suffix.lower())
    if content.startswith(FORMATS["parquet"].magic):
        return "parquet"
    if content.startswith(b"PK") and (b"xl/w" in content or b"opendocument.spreadsheet" in content[:100]):
        return "xlsx"
    try:
        text = codecs.getincrementaldecoder(codec)(errors="replace").decode(content)
    except UnicodeError:
        # Some encodings cannot replace what they do not know
        return None
    layout = json_layout(text, len(content) < START, strict=named not in ("json", "jsonl"))
    if layout or not with_separators or named not in (None, *DELIMITED):
        return layout
    lines = _first_lines(content, codec)
    if lines and all(LABEL_PREFIX in line for line in lines) and (not named or "\t" not in lines[0]):
        return "fasttext"
    try:
        # One column, or lines that differ, show that the name's separator is not the right one
        if len(lines) >= 2 and named and _num_fields(named, lines) < 2:
            return next((name for name in DELIMITED if name != named and _num_fields(name, lines) > 1), None)
    except csv.Error:
        return None
    return None


def _first_lines(content: bytes, codec: str) -> list[str]:
    """Return the first lines of a file that begins with `content`, without blank ones."""
    text = codecs.getincrementaldecoder(codec)(errors="replace").decode(content).removeprefix("\ufeff")
    lines = text.splitlines()[: None if len(content) < START else -1]
    return [line for line in lines[:SEEN_LINES] if line.strip()]


def _are_enclosed(lines: list[str], delimiter: str) -> bool:
    """Return whether double quotes enclose fields, although the format does not say so: as many in each line,
    or a value that is also there without them, or that has doubled quotes, separators or line ends."""
    rows = [line.split(delimiter) for line in lines]
    try:
        widths = {len(record) for record in csv.reader(lines, delimiter=delimiter, strict=True)}
    except csv.Error:
        return False
    inner = [[cell[1:-1] for cell in row if len(cell) > 1 and cell[0] == cell[-1] == '"'] for row in rows]
    known, enclosed = set(chain(*rows)), set(chain(*inner))
    # After a header
    is_even = bool(enclosed) and len(set(map(len, inner[1:]))) == 1
    is_told = is_even or any(cell in known or '""' in cell for cell in enclosed)
    return len(widths) == 1 and (is_told or set(map(len, rows)) != widths)


def _num_fields(format: str, lines: list[str]) -> int:
    """Return how many fields each of these lines has, 0 where they do not all have the same number."""
    quoting = csv.QUOTE_MINIMAL if FORMATS[format].is_quoted else csv.QUOTE_NONE
    records = csv.reader(lines, delimiter=FORMATS[format].delimiter, quoting=quoting)
    counts = {len(record) for record in records if record}
    return counts.pop() if len(counts) == 1 else 0


def json_layout(start: str, is_whole: bool, strict: bool) -> str | None:
    """Return `json` for one value, `jsonl` for one a line, None where the start of a file does not show it.
    `is_whole`: `start` is the whole file. `strict`: the file may be texts that begin with brackets."""
    start = start.removeprefix("\ufeff").strip()
    if not start.startswith(("[", "{")):
        return None
    try:
        value, end = json.JSONDecoder().raw_decode(start)
    except json.JSONDecodeError as error:
        goes_on = "\n" in start[: error.pos] and (not is_whole or start.endswith("}"))
        return "json" if _begins_rows(start, goes_on) else None
    except JSON_ERRORS:
        return None
    rest = start[end:].lstrip()
    if strict and not any(isinstance(item, (str, dict, list)) for item in value):
        return None
    if rest:
        # Values over several lines are not JSON Lines; the error of JSON says what to do
        layout = "json" if "\n" in start[:end] else "jsonl"
        return layout if rest.startswith(("[", "{")) else None
    if isinstance(value, dict):
        return "json" if _arrays_of_rows(value) else "jsonl" if strict else None
    # One line may also be an array of one row, or of texts
    return "json" if _is_rows(value) else None


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


class Chunk(NamedTuple):
    """Records, each a list of fields, an object, a text or a `BadRow`, and their numbers in the file."""

    numbers: list[int]
    records: list


def read_chunks(
    path: Source,
    options: ReadOptions,
    columns: Collection[int] | None = None,
) -> Iterator[Chunk]:
    """Yield the records of a file whose format and encoding are known. Values of Parquet
    columns that are not in `columns` are None. Raises InputError for a file that cannot be read at all."""
    format = FORMATS[options.format]
    if options.format == "parquet":
        return _parquet_chunks(path, columns)
    if options.format == "xlsx":
        return _excel_chunks(path)
    lines = read_lines(path, options.encoding)
    if options.format == "json":
        return _array_chunks(path, lines)
    if options.format == "fasttext":
        return _fasttext_chunks(lines)
    if options.format == "jsonl":
        return _json_line_chunks(path, lines)
    if is_quoted(options):
        return _quoted_chunks(lines, format.delimiter)
    return _plain_chunks(lines, format.delimiter)


def is_quoted(options: ReadOptions) -> bool:
    """Return whether double quotes may enclose fields."""
    format = FORMATS[options.format]
    return bool(format.delimiter) and (
        options.quoting == "double" or (options.quoting == "auto" and format.is_quoted)
    )


def _plain_chunks(blocks: Iterator[tuple[int, list[str]]], delimiter: str) -> Iterator[Chunk]:
    # A carriage return inside a line may be a line end: reading the line as one row could join many rows
    for first, lines in blocks:
        lines = [line.rstrip("\r\n") for line in lines]
        numbers, has_returns = range(first, first + len(lines)), "\r" in "".join(lines)
        if has_returns or not all(map(str.strip, lines)):
            kept = [at for at, line in enumerate(lines) if (line.strip(" \r") if delimiter else line.strip())]
            numbers, lines = [numbers[at] for at in kept], [lines[at] for at in kept]
        records = [line.split(delimiter) for line in lines] if delimiter else lines
        for at, line in enumerate(lines if has_returns else ()):
            if "\r" in line.strip(" \r"):
                problem = f"a carriage return is inside the line: {excerpt(line)}; end lines with LF or CRLF"
                records[at] = BadRow(numbers[at], problem)
        yield Chunk(list(numbers), records)


def _quoted_chunks(blocks: Iterator[tuple[int, list[str]]], delimiter: str) -> Iterator[Chunk]:
    csv.field_size_limit(FIELD_LIMIT)
    num_blocks = num_done = 0

    def read() -> Iterator[str]:
        nonlocal num_blocks
        for _number, lines in blocks:
            num_blocks += 1
            yield from lines

    reader = csv.reader(read(), delimiter=delimiter, strict=True)
    numbers, records = [], []
    while True:
        first = reader.line_num + 1
        try:
            record = next(reader)
            if record:
                numbers.append(first)
                records.append(record)
        except StopIteration:
            break
        except csv.Error as error:
            following = reader.line_num + 1
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


def _fasttext_chunks(blocks: Iterator[tuple[int, list[str]]]) -> Iterator[Chunk]:
    """Yield the text of each line and its labels, words that begin with __label__."""
    for numbers, records in _plain_chunks(blocks, ""):
        for at, line in enumerate(records):
            if isinstance(line, str):
                text = re.sub(rf"[\s,]*{LABEL_PREFIX}[^\s,]+[\s,]*", " ", line).strip()
                records[at] = [text, re.findall(rf"{LABEL_PREFIX}([^\s,]+)", line)]
        yield Chunk(numbers, records)


def _csv_problem(error: str, first: int, last: int) -> str:
    if error.startswith("new-line character"):
        return "a carriage return is outside quotes; end lines with LF or CRLF, or enclose the text in quotes"
    record = _("the record")
    if last > first:
        record = _("the record from line {first} to {last}").format(first=first, last=last)
    return _(
        "{record} is not valid CSV ({error}); double the quotes inside quoted fields, or set --data.quoting "
        "none if quotes are part of the text"
    ).format(record=record, error=error)


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=unique_keys)


def _exported(path: Source, record: Any) -> Any:
    """Return a row that Label Studio or doccano exported as a text and its labels; any other one as it is."""
    if not isinstance(record, dict) or not isinstance(record.get("annotations"), list):
        return record
    try:
        answers = [answer for answer in record["annotations"] if not answer.get("was_cancelled")]
        if isinstance(record.get("data"), dict):
            # The last answer that was not taken back
            values = [part["value"] for answer in answers[-1:] for part in answer["result"]]
            labels = [label for value in values for label in value.get("choices", [])]
            return {"id": record.get("id"), **record["data"], "label": labels}
        labels = [answer["label"] for answer in answers]
    except (AttributeError, LookupError, TypeError):
        return record
    if labels and all(isinstance(label, int) for label in labels):
        raise InputError(
            f"{path}: annotations of doccano must have the names of labels, found the id {labels[0]} alone; "
            "export the data set as JSONL, where each row has label: [name]"
        )
    return record | {"label": labels}


def _json_line_chunks(path: Source, blocks: Iterator[tuple[int, list[str]]]) -> Iterator[Chunk]:
    for first, lines in blocks:
        numbers, records = [], []
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            numbers.append(number)
            try:
                record = _parse_json(line)
            except JSON_ERRORS as error:
                problem = f"not a valid JSON value ({error}): {excerpt(line)}"
                record = BadRow(number, f"{problem}; each line must be one object or array")
            records.append(_exported(path, record))
        yield Chunk(numbers, records)


def _array_chunks(path: Source, blocks: Iterator[tuple[int, list[str]]]) -> Iterator[Chunk]:
    text = "".join(chain.from_iterable(lines for _number, lines in blocks))
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
    arrays = _arrays_of_rows(value)
    if len(arrays) > 1:
        raise InputError(
            f"{path}: one array of rows is needed, found several arrays of rows, {listed(arrays)}; write "
            "each into a separate file"
        )
    if not arrays:
        raise InputError(
            f"{path}: an array of pairs or of objects is needed, found {excerpt(value)}; put the rows into "
            'one array (pandas: df.to_json(path, orient="records")), or one a line and set --data.format '
            "jsonl"
        )
    [rows] = arrays.values()
    yield Chunk(list(range(1, len(rows) + 1)), [_exported(path, row) for row in rows])


def _arrays_of_rows(value: Any) -> dict[str, list]:
    """Return a JSON value that is an array, or the arrays of rows inside an object, by their keys."""
    if isinstance(value, list):
        return {"": value}
    return {key: inner for key, inner in value.items() if _is_rows(inner)} if isinstance(value, dict) else {}


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, (list, dict)) for row in value)


def parquet_footer(path: Path) -> Any:
    """Return pyarrow's `FileMetaData` of a Parquet file; raises InputError for a file that is not Parquet."""
    from pyarrow import parquet

    with _readable_parquet(path), path.open("rb") as file:
        return parquet.read_metadata(file)


def _parquet_chunks(path: Path, columns: Collection[int] | None) -> Iterator[Chunk]:
    from pyarrow import parquet

    number = 0
    with _readable_parquet(path), path.open("rb") as opened:
        file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
        for batch in parquet_batches(path, file):
            values = [[None] * batch.num_rows] * batch.num_columns
            for index in range(batch.num_columns) if columns is None else columns:
                try:
                    values[index] = batch.column(index).to_pylist()
                except (ValueError, OverflowError):
                    # Python does not have dates after 9999
                    values[index] = batch.column(index).cast("string").to_pylist()
                if names := _class_names(batch.schema, index):
                    values[index] = [_named(value, names) for value in values[index]]
            numbers = list(range(number + 1, number + 1 + batch.num_rows))
            yield Chunk(numbers, list(map(list, zip(*values, strict=True))))
            number += batch.num_rows
        num_rows = file.metadata.num_rows
    if number != num_rows:
        raise InputError(
            f"{path}: the Parquet file is damaged: its footer says {num_rows:,} rows, found {number:,}; "
            "write it again"
        )


def _class_names(schema: Any, index: int) -> list[str] | None:
    """Return the names of the classes of a column, which data sets of Hugging Face have in their metadata."""
    try:
        known = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][schema.names[index]]
        known = known[0] if isinstance(known, list) else known.get("feature", known)
        return known["names"] if known["_type"] == "ClassLabel" else None
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def parquet_batches(path: Path, file: Any) -> Iterator[Any]:
    """Yield the rows of an open Parquet file."""
    with _readable_parquet(path):
        yield from file.iter_batches(PARQUET_BATCH)


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
    from python_calamine import CalamineWorkbook

    sheets = {}
    try:
        # Given a path, calamine wants its own endings
        with path.open("rb") as file, CalamineWorkbook.from_filelike(file) as book:
            for name in book.sheet_names:
                sheets[name] = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
    except BaseException as error:  # also panics of Rust
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        message = shorten(str(error) or type(error).__name__, 200)
        raise InputError(
            f"{path}: not a readable Excel file: {message}; open it in Excel and save it again as .xlsx "
            "without a password, or as CSV (UTF-8)"
        ) from error
    filled = {}
    for name, rows in sheets.items():
        rows = {number: list(map(_excel_value, row)) for number, row in enumerate(rows, 1)}
        if rows := {number: row for number, row in rows.items() if row != [None] * len(row)}:
            filled[name] = rows
    if not filled:
        raise InputError(f"{path}: there are no rows, its {len(sheets)} sheet(s) are empty")
    if len(filled) > 1:
        raise InputError(
            f"{path}: one sheet with values is needed, found {listed(filled)}; save the one to read as a "
            "separate file"
        )
    [rows] = filled.values()
    first = next(iter(rows.values()))
    width = max(number for number, cell in enumerate(first, 1) if cell is not None)
    yield Chunk(list(rows), [row[:width] for row in rows.values()])


def _excel_value(cell: Any) -> Any:
    # All numbers come as floats
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return None if isinstance(cell, str) and not cell.strip() else cell


def named_rows(
    path: Path, options: ReadOptions, check_names: Callable[[str, list[str]], None]
) -> Iterator[tuple[int, dict]]:
    """Yield number and values by column name of each row of a file of objects, or with a header, whose place
    and names `check_names` gets. Raises InputError, with the place, for what is no row."""
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
