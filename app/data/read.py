"""The encoding and the format of a file, by its settings, else by its content, else by its name; and its
records, in chunks."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, excerpt, listed, shorten
from ..runtime.disk import unique_keys
from ..words import _
from .file_formats import ARROW, DELIMITED, FORMATS, SUFFIXES, BadRow, ReadOptions
from .files import Source, Stream, check_file, codec_name, file_encoding, read_lines, read_start

START = 1 << 20  # bytes from which the format is recognised
SEEN_LINES = 500  # lines from which the separator is recognised
FIRST_LINE = 1 << 16  # bytes in which the first line of a table ends
# Some files have separators of more than one character, which no format here has
LONG_SEPARATORS = ("_!_", "|,|", "~|~", "||", "::", "##")
LABEL_SETTINGS = ("label_column", "label_separator", "label_columns")
LABEL_PREFIX = "__label__"  # of fastText
PARQUET_BATCH = 4096  # rows
BUFFER = 1 << 20  # bytes of a Parquet column read at once, so that a large group of rows is not held
# csv's own limit of 131,072 characters in a field is too low for long documents
FIELD_LIMIT = 1 << 26
# ValueError is more than JSONDecodeError: an integer may have too many digits
JSON_ERRORS = (ValueError, RecursionError)
# pyarrow raises these for bytes that are not Parquet, and for values that Python does not have
PARQUET_ERRORS = (OSError, ValueError, OverflowError, LookupError, TypeError, MemoryError)
# JSON that is no JSON Lines begins so: it is an array of rows, or an object of several lines
JSON_START = re.compile(r'\[\s*[\[{]|\{\s*\n\s*"')


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


def recognised(path: Source, options: ReadOptions, need_label: bool = True) -> ReadOptions:
    """Return the settings with the encoding and the format that a file has, in place of utf-8 and auto, and
    with its quoting. The format is that of its content, else of its name; a .txt file without labels has one
    text a line. Raises InputError for a file that cannot be read, or begins otherwise than its format
    does."""
    encoding = file_encoding(path, options.encoding)
    format, suffix = options.format, path.suffix.lower()
    if format == "auto":
        is_plain = suffix == ".txt" and not need_label
        by_name = "text" if is_plain else SUFFIXES.get(suffix)
        format = content_format(path, encoding, with_separators=not is_plain) or by_name
    check_file(path, format, encoding)
    if format is None:
        said = _("{path}: cannot tell the format (known endings of names: {endings}); set --data.format")
        raise InputError(said.format(path=path, endings=", ".join(SUFFIXES)))
    if format in DELIMITED and not isinstance(path, Stream):
        lines = _first_lines(read_start(path, START), codec_name(encoding))
        if options.format == "auto":
            _check_separator(path, lines, format)
        if options.quoting == "auto" and _are_enclosed(lines, FORMATS[format].delimiter):
            options = replace(options, quoting="double")
    return replace(options, encoding=encoding, format=format)


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
    replaced = {"format", "limit"} | (set(LABEL_SETTINGS) if "label_columns" in asked else set())
    if {"label_column", "label_separator"} & set(asked):
        replaced.add("label_columns")
    known = {name: value for name, value in recorded.items() if name not in replaced and value is not None}
    names = {field.name for field in fields(ReadOptions)}.difference(() if need_label else LABEL_SETTINGS)
    options = ReadOptions(**{name: value for name, value in (known | asked).items() if name in names})
    options = replace(options, encoding=file_encoding(path, options.encoding))
    if "format" in asked:
        return options
    if isinstance(path, Stream):
        return replace(options, format="text")
    suffix, format = path.suffix.lower(), recorded.get("format")
    train = recorded.get("train") or ""
    first_train = train if isinstance(train, str) else train[0]
    is_alike = suffix == Path(first_train).suffix.lower()
    # A .txt file is a table only if that of the run was one, and its lines show it
    found = content_format(path, options.encoding, with_separators=need_label or is_alike or suffix != ".txt")
    if found is None and format in DELIMITED and (is_alike or suffix not in SUFFIXES):
        found = format
    elif found is None and suffix == ".txt" and is_alike:
        found = "tsv" if b"\t" in read_start(path, FIRST_LINE).split(b"\n")[0] else None
    return recognised(path, replace(options, format=found or "auto"), need_label)


def content_format(path: Source, encoding: str, with_separators: bool = False) -> str | None:
    """Return the format that the first bytes of a file show, whatever its name, None where they show none.
    With `with_separators`, a separator other than that of the name shows one too. A stream shows none: its
    first bytes may not be there yet."""
    codec = codec_name(encoding)
    if isinstance(path, Stream):
        return None
    content, named = read_start(path, START), SUFFIXES.get(path.suffix.lower())
    if content.startswith(FORMATS["parquet"].magic):
        return "parquet"
    if content.startswith(b"PK") and (b"xl/w" in content or b"opendocument.spreadsheet" in content[:100]):
        return "xlsx"
    try:
        lines = _first_lines(content, codec)
    except UnicodeError:
        # Some encodings cannot replace bytes that they do not know
        return None
    layout = json_layout("\n".join(lines), strict=named not in ("json", "jsonl"))
    if layout or not with_separators or named not in (None, *DELIMITED):
        return layout
    if lines and all(LABEL_PREFIX in line for line in lines) and (not named or "\t" not in lines[0]):
        return "fasttext"
    # One column, or lines that differ, show that the name's separator is not the right one
    if len(lines) >= 2 and named and _num_fields(named, lines) < 2:
        return next((name for name in DELIMITED if name != named and _num_fields(name, lines) > 1), None)
    return None


def _first_lines(content: bytes, codec: str) -> list[str]:
    """Return the first lines of a file that begins with `content`, without blank ones."""
    text = codecs.getincrementaldecoder(codec)(errors="replace").decode(content).removeprefix("\ufeff")
    lines = text.split("\n")[: None if len(content) < START else -1] or [text]
    return [line.rstrip("\r") for line in lines[:SEEN_LINES] if line.strip()]


def _check_separator(path: Path, lines: list[str], format: str) -> None:
    """Raise InputError where the lines have a separator of several characters, unless the format is that of
    the file's name, and its own separator makes columns of them."""
    delimiter = FORMATS[format].delimiter
    is_split = SUFFIXES.get(path.suffix.lower()) == format and _num_fields(format, lines) > 1
    for longer in LONG_SEPARATORS if len(lines) > 1 else ():
        is_even = longer in lines[0] and len({line.count(longer) for line in lines}) == 1
        if is_even and (delimiter in longer or not is_split):
            said = _("{path}: one character must be between columns, found '{separator}'; replace it by tabs")
            raise InputError(said.format(path=path, separator=longer))


def _are_enclosed(lines: list[str], delimiter: str) -> bool:
    """Return whether double quotes enclose fields, although the format does not say so: each line has as many
    such fields, or they have doubled quotes or separators in them."""
    rows = [line.split(delimiter) for line in lines]
    try:
        records = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    widths = set(map(len, records))
    # A lone quote would make one field of the whole rows that follow, up to the next one
    if sum(len(row) in widths for row in rows) > len(records):
        return False
    enclosed = [[cell for cell in row if len(cell) > 1 and cell[0] == cell[-1] == '"'] for row in rows]
    # The first line may be a header without quotes
    is_even = len(set(map(len, enclosed[1:]))) == 1 and bool(enclosed[-1])
    is_doubled = any('""' in cell[1:-1] for cell in chain(*enclosed))
    return len(widths) == 1 and (is_even or is_doubled or set(map(len, rows)) != widths)


def _num_fields(format: str, lines: list[str]) -> int:
    """Return how many fields each of these lines has, 0 where they do not all have the same number."""
    quoting = csv.QUOTE_MINIMAL if FORMATS[format].is_quoted else csv.QUOTE_NONE
    try:
        records = csv.reader(lines, delimiter=FORMATS[format].delimiter, quoting=quoting)
        counts = {len(record) for record in records if record}
    except csv.Error:
        return 0
    return counts.pop() if len(counts) == 1 else 0


def json_layout(start: str, strict: bool) -> str | None:
    """Return `json` for one value, `jsonl` for one a line, None where the first lines of a file do not show
    it. `strict`: the file may be texts that begin with brackets."""
    start = start.removeprefix("\ufeff").strip()
    line, _end, rest = start.partition("\n")
    try:
        value = json.loads(line)
    except JSON_ERRORS:
        return "json" if JSON_START.match(start) else None
    if not isinstance(value, (list, dict)):
        return None
    if strict and not any(isinstance(item, (str, dict, list)) for item in value):
        return None
    if rest:
        return "jsonl" if rest.lstrip().startswith(("[", "{")) else None
    if isinstance(value, dict):
        return "jsonl" if strict else None
    # One line may also be an array of one row, or of texts
    return "json" if value and all(isinstance(row, (list, dict)) for row in value) else None


class Chunk(NamedTuple):
    """Records, each a list of fields, an object, a text or a `BadRow`, and their numbers in the file."""

    numbers: list[int]
    records: list


def read_chunks(
    path: Source, options: ReadOptions, columns: Collection[int] | None = None
) -> Iterator[Chunk]:
    """Yield the records of a file whose format and encoding are known. Values of Parquet columns that are not
    in `columns` are None. Raises InputError for a file that cannot be read at all."""
    if options.format == "parquet":
        return _parquet_chunks(path, columns)
    if options.format == "xlsx":
        return _excel_chunks(path)
    lines, delimiter = read_lines(path, options.encoding), FORMATS[options.format].delimiter
    if options.format == "json":
        return _array_chunks(path, lines)
    if options.format == "jsonl":
        return _json_line_chunks(lines)
    if options.is_quoted:
        return _quoted_chunks(lines, delimiter)
    return _plain_chunks(lines, delimiter, options.format == "fasttext")


def _plain_chunks(
    blocks: Iterator[tuple[int, list[str]]], delimiter: str, has_prefixes: bool
) -> Iterator[Chunk]:
    for first, lines in blocks:
        lines = [line.rstrip("\r\n") for line in lines]
        numbers, has_returns = range(first, first + len(lines)), "\r" in "".join(lines)
        if has_returns or not all(map(str.strip, lines)):
            # A line of tabs only is a row of empty fields
            blanks = " \r" if delimiter else None
            kept = [at for at, line in enumerate(lines) if line.strip(blanks)]
            numbers, lines = [numbers[at] for at in kept], [lines[at] for at in kept]
        records = [line.split(delimiter) for line in lines] if delimiter else list(lines)
        for at, line in enumerate(lines if has_prefixes else ()):
            # A record is the text, and the list of its labels
            text = re.sub(rf"[\s,]*{LABEL_PREFIX}[^\s,]+[\s,]*", " ", line).strip()
            records[at] = [text, re.findall(rf"{LABEL_PREFIX}([^\s,]+)", line)]
        for at, line in enumerate(lines if has_returns else ()):
            # It may be a line end: reading the line as one row could join many rows
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
            # None of the lines of this record can be read, and each counts as a row
            following = reader.line_num + 1
            numbers += range(first, following)
            problem = _(
                "the record from line {first} to {last} is not valid CSV ({error}); double the quotes in "
                "quoted fields, end lines with LF, or set --data.quoting none if quotes are part of the text"
            ).format(first=first, last=following - 1, error=str(error).partition(" - ")[0])
            records += [BadRow(line, problem) for line in range(first, following)]
        if num_blocks > num_done:
            # A chunk has the records that end in one block, so chunks of long texts have few
            yield Chunk(numbers, records)
            numbers, records, num_done = [], [], num_blocks
    yield Chunk(numbers, records)


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=unique_keys)


def _exported(record: Any) -> Any:
    """Return a row of Label Studio's JSON as an object of its data and its labels; any other one as it is."""
    try:
        # The last answer that was not taken back counts
        answer = [one for one in record["annotations"] if not one.get("was_cancelled")][-1]
        labels = [label for part in answer["result"] for label in part["value"].get("choices", [])]
        return {"id": record.get("id"), **record["data"], "label": labels}
    except (AttributeError, LookupError, TypeError):
        return record


def _json_line_chunks(blocks: Iterator[tuple[int, list[str]]]) -> Iterator[Chunk]:
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
            records.append(_exported(record))
        yield Chunk(numbers, records)


def _array_chunks(path: Source, blocks: Iterator[tuple[int, list[str]]]) -> Iterator[Chunk]:
    text = "".join(chain.from_iterable(lines for _number, lines in blocks))
    try:
        value = _parse_json(text)
    except JSON_ERRORS as error:
        where = f"{path}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else path
        remedy = "fix the file there, or set --data.format jsonl where each line is a value"
        raise InputError(f"{where}: JSON that cannot be read ({error}); {remedy}") from error
    if not isinstance(value, list):
        raise InputError(
            f"{path}: an array of pairs or of objects is needed, found {excerpt(value)}; write the rows as "
            'one (pandas: df.to_json(path, orient="records")), or one a line, as .jsonl'
        )
    yield Chunk(list(range(1, len(value) + 1)), list(map(_exported, value)))


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet or Arrow file; raises InputError for any other file."""
    from pyarrow import ipc, parquet

    with readable_parquet(path), path.open("rb") as file:
        is_arrow = file.peek(4).startswith(ARROW)
        return (ipc.open_stream(file).schema if is_arrow else parquet.read_schema(file)).names


def _parquet_chunks(path: Path, columns: Collection[int] | None) -> Iterator[Chunk]:
    from pyarrow import ipc, parquet

    number = 0
    with readable_parquet(path), path.open("rb") as opened:
        if opened.peek(4).startswith(ARROW):
            batches, num_rows = ipc.open_stream(opened), None
        else:
            file = parquet.ParquetFile(opened, buffer_size=BUFFER, page_checksum_verification=True)
            batches, num_rows = file.iter_batches(PARQUET_BATCH), file.metadata.num_rows
        for batch in batches:
            values = [[None] * batch.num_rows] * batch.num_columns
            for index in range(batch.num_columns) if columns is None else columns:
                values[index] = batch.column(index).to_pylist()
                if names := _class_names(batch.schema, index):
                    values[index] = [_named(value, names) for value in values[index]]
            numbers = list(range(number + 1, number + 1 + batch.num_rows))
            yield Chunk(numbers, list(map(list, zip(*values, strict=True))))
            number += batch.num_rows
        if num_rows not in (None, number):
            problem = f"its footer says {num_rows:,} rows, found {number:,}; write it again"
            raise InputError(f"{path}: the Parquet file is damaged: {problem}")


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
    """Yield the rows of an open Parquet file as record batches; raises InputError where they cannot be
    read."""
    with readable_parquet(path):
        yield from file.iter_batches(PARQUET_BATCH)


@contextmanager
def readable_parquet(path: Path) -> Iterator[None]:
    """Raise InputError in place of the errors of pyarrow inside."""
    from pyarrow import ArrowException

    try:
        yield
    except InputError:
        raise
    except (ArrowException, *PARQUET_ERRORS) as error:
        raise InputError(f"{path}: not a readable Parquet file: {shorten(str(error), 200)}") from error


def _excel_chunks(path: Path) -> Iterator[Chunk]:
    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(f"{path}: Excel files need a package: pip install python-calamine") from error
    sheets = {}
    try:
        # Given a path, calamine accepts its own endings of names only
        with path.open("rb") as file, CalamineWorkbook.from_filelike(file) as book:
            for name in book.sheet_names:
                cells = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
                rows = {number: list(map(_excel_value, row)) for number, row in enumerate(cells, 1)}
                sheets[name] = {number: row for number, row in rows.items() if row != [None] * len(row)}
    except BaseException as error:  # also panics of Rust
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        problem = shorten(str(error) or type(error).__name__, 200)
        remedy = "save it again as .xlsx without a password, or as CSV (UTF-8)"
        raise InputError(f"{path}: not a readable Excel file: {problem}; {remedy}") from error
    filled = {name: rows for name, rows in sheets.items() if rows}
    if len(filled) != 1:
        found = f"{listed(filled) or 'none'}; save the one to read as a separate file"
        raise InputError(f"{path}: one sheet with values is needed, found {found}")
    [rows] = filled.values()
    first = next(iter(rows.values()))
    width = max(number for number, cell in enumerate(first, 1) if cell is not None)
    yield Chunk(list(rows), [row[:width] for row in rows.values()])


def _excel_value(cell: Any) -> Any:
    # All numbers come as floats
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return None if isinstance(cell, str) and not cell.strip() else cell
