"""Files of labelled text -> validated rows, one at a time.

An invalid row becomes a `BadRow` with its line, what was found and what to do; the caller decides whether
that stops the run. No row is dropped without a message.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..config.file_formats import FORMATS
from ..errors import InputError, excerpt
from .columns import (
    SETTING,
    TEXT_NAMES,
    Columns,
    check_first_line,
    columns_of_first,
    has_header,
    resolve_columns,
)
from .formats import file_format, open_reader, row_unit
from .label_cells import encode_labels, labels_in_cell, labels_in_columns
from .readers import BadRow, MultiLabelOptions, ReadOptions
from .readers.excel import NotText
from .text_files import Source, Stream

# Unicode categories: control and format characters, separators
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}


class Row(NamedTuple):
    """One valid row; `line` is its first line in the file (in JSON its element, in Parquet and Excel its
    row), from 1. `record` is the whole of it, a list of fields or an object, where `read_rows` keeps it."""

    line: int
    text: str
    pair: str | None
    label: str | None
    record: Any = None


def _clean(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem."""
    if not isinstance(value, str):
        raise ValueError(
            f"the {what} must be a string, found {_found(value)}; fix the row or set --data.{SETTING[what]}"
        )
    text = "".join(value.split()) if remove_spaces else value.strip()
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        raise ValueError(f"the {what} is empty; fill it in or remove the row")
    _check_characters(text, what)
    return text


def _found(value: Any) -> str:
    return value.found if isinstance(value, NotText) else excerpt(value)


def _check_characters(text: str, what: str) -> None:
    """Raise ValueError for bytes that could not be decoded and for unpaired surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if 0xDC80 <= code <= 0xDCFF:
            raise ValueError(
                f"invalid byte 0x{code - 0xDC00:02x} in the {what} {excerpt(text)}; set --data.encoding "
                "(gb18030 for most older Chinese files) or fix the file"
            ) from error
        raise ValueError(
            f"unpaired surrogate U+{code:04X} in the {what} {excerpt(text)}; fix the file"
        ) from error


def _label(value: Any) -> str:
    """Return the label as a string; raises ValueError with the problem."""
    # Integers come as floats from a column with missing values
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(
            f"the label must be a string or an integer, found {_found(value)}; fix the row or set "
            "--data.label_column"
        )
    return _clean(str(value), False, "label")


def _label_or_set(value: Any, options: ReadOptions) -> str:
    """Return the label, or the text of a set of labels; raises ValueError with the problem."""
    if not isinstance(options, MultiLabelOptions):
        return _label(value)
    if options.label_columns is not None:
        return encode_labels(labels_in_columns(value, options.label_columns))
    return encode_labels([_label(label) for label in labels_in_cell(value, options.label_separator)])


def read_rows(
    path: str | Source,
    options: ReadOptions,
    need_label: bool = True,
    notes: dict | None = None,
    keep_records: bool = False,
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order: valid ones as `Row`, others as `BadRow`; with `keep_records`, each
    with its record.

    Blank lines are not rows. The format `text`, one text per line, has no labels (`need_label` False). If
    `notes` is given, it receives `columns` (the ones that are used), `used` (the same as `Columns`), `names`
    (of all columns, None where they have none), `place` (what a row's number counts),
    `multiline` (the number of CSV records over several lines) and `first_multiline` (the line of the first
    one). With `options.limit`, only the first rows are read. Raises InputError if the file cannot be read,
    has no rows, or does not have a chosen column.
    """
    path = path if isinstance(path, Stream) else Path(path)
    notes = {} if notes is None else notes
    format = file_format(path, options.format, options.encoding)
    reader, properties = open_reader(path, options, format), FORMATS[format]
    notes.update(place=row_unit(format), multiline=0, columns="", used=None, names=None)
    columns: Columns | None = None
    wanted: list[int | None] = []
    names = reader.column_names()
    if names is not None:
        columns = resolve_columns(str(path), options, names, len(names), need_label)
        wanted = range(len(names)) if keep_records else [columns.text, columns.pair, *columns.labels]
        notes.update(columns=columns.described, used=columns, names=names)
    count = 0
    for line, record in reader.records(wanted):
        if columns is None:
            where = f"{path}, {row_unit(format)} {line}"
            is_header = properties.has_header and _is_header(where, record, options, need_label)
            columns = _first_columns(where, record, is_header, options, need_label)
            notes.update(columns=columns.described if columns else "", used=columns)
            if is_header:
                names = notes["names"] = record
                continue
        if options.limit is not None and count >= options.limit:
            return
        count += 1
        row = _row(line, record, columns, options)
        if properties.is_delimited and isinstance(row, Row) and any("\n" in field for field in record):
            notes["multiline"] += 1
            notes.setdefault("first_multiline", line)
        yield row._replace(record=record) if keep_records and record is not row else row
    if count == 0:
        raise InputError(
            f"{path}: there are no rows in the file"
            + (", only a header" if names and properties.has_header else "")
        )


def text_rows(texts: Iterable[str | tuple[str, str]], options: ReadOptions) -> Iterator[Row | BadRow]:
    """Yield texts, or pairs of them, that are in no file as rows without labels, numbered from 1."""
    for line, text in enumerate(texts, 1):
        is_pair = isinstance(text, tuple)
        columns = Columns(0, 1, None, 2, "") if is_pair else Columns(0, None, None, 1, "")
        yield _row(line, list(text) if is_pair else text, columns, options)


def _first_columns(
    where: str, record: Any, is_header: bool, options: ReadOptions, need_label: bool
) -> Columns | None:
    """Return the columns from the first record, None for an invalid one; reports a wrong encoding before
    anything else."""
    try:
        if is_header:
            names = [str(name).strip() for name in record]
            _check_characters(" ".join(names), "header")
            return resolve_columns(where, options, names, len(names), need_label)
        return columns_of_first(where, options, record, need_label)
    except ValueError as error:
        if isinstance(record, (list, dict)):
            try:
                _check_characters(" ".join(value for value in record if isinstance(value, str)), "first row")
            except ValueError as cause:
                raise InputError(f"{where}: {cause}") from error
        raise


def _is_header(where: str, record: list | BadRow, options: ReadOptions, need_label: bool) -> bool:
    """Return whether the first record of a CSV, TSV or Excel file is a header; raises InputError if that is
    not clear."""
    if isinstance(record, BadRow):
        # Or the next line would be read as the header
        if has_header([], options):
            raise InputError(f"{where}: the header cannot be read: {record.problem}")
        return False
    is_header = has_header(record, options)
    if need_label and not is_header:
        check_first_line(where, options, record)
    if is_header or need_label or options.header is not None:
        return is_header
    # Without labels, the header may have only the name of the text column.
    return any(str(value).strip().lower() in TEXT_NAMES for value in record)


def _row(line: int, record: Any, columns: Columns | None, options: ReadOptions) -> Row | BadRow:
    if isinstance(record, BadRow):
        return record
    if isinstance(record, str) and columns is not None and columns.label is None:
        record = [record]
    if columns is None or not isinstance(record, dict if columns.width is None else list):
        wants_object = columns is not None and columns.width is None
        rule = "an object like the first one" if wants_object else "an array of text and label, or an object"
        return BadRow(line, f"{rule} is needed, found {excerpt(record)}")
    if columns.width is not None and len(record) != columns.width:
        shown = " | ".join(value if isinstance(value, str) else excerpt(value) for value in record[:20])
        return BadRow(
            line,
            f"{columns.width} columns are needed as in the first row, found {len(record)}: {excerpt(shown)}; "
            "remove extra separators from the text (or, in CSV, enclose it in double quotes) or fill in "
            "what is missing",
        )
    try:
        text, pair, label = columns.pick(record)
        row = Row(
            line,
            _clean(text, options.remove_spaces, "text"),
            None if columns.pair is None else _clean(pair, options.remove_spaces, "second text"),
            None if columns.label is None else _label_or_set(label, options),
        )
    except KeyError as error:
        return BadRow(
            line,
            f"the column {excerpt(error.args[0])} is missing, found {excerpt(record)}; add it or remove the "
            "row",
        )
    except ValueError as error:
        return BadRow(line, str(error))
    return row
