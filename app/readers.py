"""Files -> records (lists of fields, or JSON objects), one at a time: CSV, TSV, JSON, JSON Lines and Parquet.

A file that cannot be read at all raises InputError. A record that breaks its format comes out as a `BadRow`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from app.errors import InputError, nearest

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
MAGIC = {
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"PK\x03\x04": "a ZIP or Excel file; save it as CSV (UTF-8)",
    b"\xff\xfe": "UTF-16 text; set --data.encoding utf-16",
    b"\xfe\xff": "UTF-16 text; set --data.encoding utf-16",
}
FIELD_LIMIT = 1 << 26  # characters in one CSV field; csv's own limit of 131,072 would refuse a long document


class BadRow(NamedTuple):
    """One row that breaks a rule."""

    line: int
    problem: str


@dataclass(frozen=True)
class ReadOptions:
    """The settings that decide what a file's rows are; see `DataConfig` for each."""

    format: str = "auto"
    text_column: int | str | None = None
    text_pair_column: int | str | None = None
    label_column: int | str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    quoting: str = "auto"
    remove_spaces: bool = False
    limit: int | None = None


def file_format(path: Path, format: str) -> str:
    """Return the format of `path`: as given, or by the file's name."""
    if format != "auto":
        return format
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: the format cannot be told from the file's name (known endings: {', '.join(SUFFIXES)}); set --data.format"
        )
    return SUFFIXES[path.suffix.lower()]


def place(format: str) -> str:
    """Return what a row's number counts in a file of this format."""
    return {"json": "element", "parquet": "row"}.get(format, "line")


def check_file(path: Path, format: str) -> None:
    """Raise InputError unless `path` is a regular, non-empty file of the kind that `format` wants."""
    if not path.exists():
        folder = path.parent
        near = (
            nearest(path.name, [p.name for p in folder.iterdir()])
            if folder.is_dir()
            else f"; there is no folder {folder}"
        )
        raise InputError(f"{path}: there is no such file{near}")
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir())[:8]
        raise InputError(
            f"{path}: a file is needed, found a directory; name one of its files: {', '.join(names) or '(it is empty)'}"
        )
    if not path.is_file():
        raise InputError(
            f"{path}: a regular file is needed, found a pipe or a device; save its content to a file first"
        )
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if not start:
        raise InputError(f"{path}: there are no rows, the file is empty")
    if format != "parquet":
        for magic, what in MAGIC.items():
            if start.startswith(magic) and not (start[:2] in (b"\xff\xfe", b"\xfe\xff") and format == "utf-16"):
                raise InputError(f"{path}: text is needed, found {what}")


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """Yield decoded lines; undecodable bytes become lone surrogates, which `app.rows` refuses with the line's number.

    Lines end at \\n only: other separators (U+2028, form feed) are part of the text. UTF-16 has no byte for a line end,
    so it is decoded as a stream.
    """
    try:
        "".encode(encoding)
    except LookupError as error:
        raise InputError(
            f"data.encoding must be an encoding Python knows, found '{encoding}'; try utf-8 or gb18030"
        ) from error
    if encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        with path.open(encoding=encoding, errors="replace", newline="\n") as file:
            yield from file
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file):
            line = raw.decode(encoding, errors="surrogateescape")
            yield line.removeprefix("\ufeff") if number == 0 else line


def _delimited(
    path: Path, options: ReadOptions, delimiter: str, quoted: bool
) -> Iterator[tuple[int, list[str] | BadRow]]:
    if not quoted:
        for number, line in enumerate(_lines(path, options.encoding), 1):
            line = line.rstrip("\r\n")
            if line.strip(" \r"):
                yield number, line.split(delimiter)
        return
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(_lines(path, options.encoding), delimiter=delimiter, strict=True)
    while True:
        first = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield (
                first,
                BadRow(
                    first,
                    f"the record from line {first} to {reader.line_num} is not valid CSV ({error}); double the "
                    "quotes inside quoted fields, or set --data.quoting none if quotes are part of the text",
                ),
            )
            continue
        if record:
            yield first, record


def _json_lines(path: Path, options: ReadOptions) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_lines(path, options.encoding), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            yield (
                number,
                BadRow(
                    number, f"not a valid JSON value ({error}): {excerpt(line)}; each line must be one object or array"
                ),
            )


def _json_array(path: Path, options: ReadOptions) -> Iterator[tuple[int, Any]]:
    text = "".join(_lines(path, options.encoding))
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        hint = "; it looks like JSON Lines, set --data.format jsonl" if error.msg == "Extra data" else ""
        raise InputError(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg} at column {error.colno}){hint}"
        ) from error
    except RecursionError as error:
        raise InputError(f"{path}: the JSON is nested too deeply; an array of pairs or of objects is needed") from error
    if not isinstance(found, list):
        raise InputError(f"{path}: an array of pairs or of objects is needed, found {type(found).__name__}")
    yield from enumerate(found, 1)


def _parquet(path: Path) -> Iterator[tuple[int, list]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches(batch_size=4096):
            for record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                yield number, list(record)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {error}") from error


def parquet_names(path: Path) -> list[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.read_schema(path).names
    except pyarrow.ArrowException as error:
        raise InputError(f"{path}: not a readable Parquet file: {error}") from error


def excerpt(value: Any, length: int = 40) -> str:
    """Return a short, printable form of `value` for an error message."""
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("utf-8", "backslashreplace").decode().strip()
    return repr(text[:length] + ("…" if len(text) > length else ""))


def read_records(path: Path, options: ReadOptions, format: str) -> Iterator[tuple[int, Any]]:
    """Yield (number, record) for each record of a checked file; the number is what `place(format)` counts, from 1."""
    if format in ("csv", "tsv"):
        quoted = options.quoting == "double" or (options.quoting == "auto" and format == "csv")
        return _delimited(path, options, "," if format == "csv" else "\t", quoted)
    if format == "parquet":
        return _parquet(path)
    return _json_lines(path, options) if format == "jsonl" else _json_array(path, options)
