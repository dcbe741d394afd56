"""Files of labelled text -> validated rows, one at a time.

A row that breaks a rule comes out as a `BadRow`, with where it stands, what was found and what to do; the caller decides
whether that stops the run. No row is lost in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from app.columns import Columns, columns_of_first, has_header, resolve_columns
from app.errors import InputError
from app.readers import BadRow, ReadOptions, check_file, excerpt, file_format, parquet_names, place, read_records

INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"


class Row(NamedTuple):
    """One valid row; `line` is its first line in the file (for JSON and Parquet: its element, from 1)."""

    line: int
    text: str
    pair: str | None
    label: str | None


def _clean(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without surrounding white space; raises ValueError saying what is wrong with it."""
    if not isinstance(value, str):
        raise ValueError(f"the {what} must be a string, found {excerpt(value)}")
    text = "".join(value.split()) if remove_spaces else value.strip()
    if not text.strip(INVISIBLE):
        raise ValueError(f"the {what} is empty; remove the row or give it a text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if 0xDC80 <= code <= 0xDCFF:
            raise ValueError(
                f"invalid byte 0x{code - 0xDC00:02x} in the {what} {excerpt(text)}; set --data.encoding "
                "(gb18030 for most older Chinese files) or mend the file"
            ) from error
        raise ValueError(f"unpaired surrogate U+{code:04X} in the {what} {excerpt(text)}; mend the file") from error
    return text


def _label(value: Any) -> str:
    """Return the label as a string; raises ValueError saying what is wrong with it."""
    if isinstance(value, float) and value.is_integer():  # a column of integers with a gap comes as floats
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"the label must be a string or an integer, found {excerpt(value)}")
    return _clean(str(value), False, "label")


def read_rows(
    path: str | Path, options: ReadOptions, need_label: bool = True, notes: dict | None = None
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in their order, valid ones as `Row`, others as `BadRow`.

    Blank lines are no rows. `notes`, when given, receives `columns` (which were used), `place` (what a row's number
    counts) and `multiline` (quoted CSV records over several lines: how many, and the first one's line). With
    `options.limit`, only the first rows are read. Raises InputError where the file as a whole cannot be read, has no
    rows, or lacks a chosen column.
    """
    path = Path(path)
    notes = {} if notes is None else notes
    format = file_format(path, options.format)
    check_file(path, "utf-16" if options.encoding.lower().startswith("utf-16") else format)
    notes.update(place=place(format), multiline=0, columns="")
    columns: Columns | None = None
    names = parquet_names(path) if format == "parquet" else None
    count = 0
    for line, record in read_records(path, options, format):
        if columns is None and not isinstance(record, BadRow):
            if format in ("csv", "tsv") and has_header(record, options):
                names = [str(name).strip() for name in record]
                columns = resolve_columns(path, options, names, len(names), need_label)
                notes["columns"] = columns.described
                continue
            columns = columns_of_first(path, options, record, names, need_label)
            notes["columns"] = columns.described if columns else ""
        if options.limit is not None and count >= options.limit:
            return
        count += 1
        yield _row(line, record, columns, options, notes)
    if count == 0:
        raise InputError(f"{path}: there are no rows in the file" + (", only a header" if names else ""))


def _row(line: int, record: Any, columns: Columns | None, options: ReadOptions, notes: dict) -> Row | BadRow:
    if isinstance(record, BadRow):
        return record
    if isinstance(record, str) and columns is not None and columns.label is None:
        record = [record]
    if columns is None or not isinstance(record, dict if columns.width is None else list):
        wanted = (
            "an object like the first one"
            if columns and columns.width is None
            else "an array of text and label, or an object"
        )
        return BadRow(line, f"{wanted} is needed, found {excerpt(record)}")
    if columns.width is not None and len(record) != columns.width:
        return BadRow(
            line,
            f"{columns.width} columns are needed as in the first row, found {len(record)}: {excerpt(' | '.join(map(str, record)))}; "
            "remove extra separators from the text or fill in what is missing",
        )
    try:
        text, pair, label = columns.pick(record)
        row = Row(
            line,
            _clean(text, options.remove_spaces, "text"),
            None if columns.pair is None else _clean(pair, options.remove_spaces, "second text"),
            None if columns.label is None else _label(label),
        )
    except KeyError as error:
        return BadRow(line, f"the column {error} is missing; the object has: {', '.join(record)}")
    except ValueError as error:
        return BadRow(line, str(error))
    if "\n" in row.text:
        notes["multiline"] += 1
        notes.setdefault("first_multiline", line)
    return row
