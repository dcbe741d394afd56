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
from .columns import Columns
from .first_rows import Looks, open_records
from .formats import file_format, open_reader, row_unit
from .headers import SETTING
from .label_cells import encode_labels, labels_in_cell, labels_in_columns
from .readers import BadRow, MultiLabelOptions, ReadOptions
from .readers.excel import EMPTY, NotText
from .text_files import Source, Stream, check_characters

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


class EmptyText(ValueError):
    """A row without a text."""


def _clean(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem."""
    if value is None or value is EMPTY:
        found = "null" if value is None else EMPTY.found
        raise EmptyText(f"the {what} is empty, found {found}; fill it in or remove the row")
    if not isinstance(value, str):
        raise ValueError(
            f"the {what} must be a string, found {_found(value)}; fix the row or set --data.{SETTING[what]}"
        )
    text = "".join(value.split()) if remove_spaces else value.strip()
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        # An empty label is a wrong label
        problem = f"the {what} is empty; fill it in or remove the row"
        raise ValueError(problem) if what == "label" else EmptyText(problem)
    check_characters(text, what)
    return text


def _found(value: Any) -> str:
    return value.found if isinstance(value, NotText) else excerpt(value)


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
        if isinstance(value, list) and all(isinstance(label, (str, int)) for label in value):
            # Not a wrong row: to skip such rows would skip those with several labels
            raise InputError(
                f"a row must have one label, found the list {excerpt(value)}; for several labels a row set "
                "--data.task multi_label; or set --data.label_column"
            )
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
    find_pairs: bool = False,
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order: valid ones as `Row`, others as `BadRow`; with `keep_records`, each
    with its record.

    Blank lines are not rows. The format `text`, one text per line, has no labels (`need_label` False). If
    `notes` is given, it receives `columns` (which are used and which not, in words), `used` (the same as
    `Columns`), `names` (of all columns, None where they have none), `place` (what a row's number counts),
    `multiline` (the number of CSV records over several lines), `first_multiline` (the line of the first one),
    and `is_first_row` (whether a header is possible and the first line was not taken for one). With
    `find_pairs`, rows may be pairs of texts although no setting says so. With `options.limit`, only the first
    rows are read. Raises InputError if the file cannot be read, has no rows, or lacks a chosen column.
    """
    path = path if isinstance(path, Stream) else Path(path)
    notes = {} if notes is None else notes
    format = file_format(path, options.format, options.encoding)
    reader, properties = open_reader(path, options, format), FORMATS[format]
    notes.update(place=row_unit(format), multiline=0, is_first_row=False)
    looks = Looks(need_label, find_pairs, keep_records)
    names, columns, records = open_records(path, reader, properties, options, looks, notes)
    count = 0
    for line, record in records:
        if names is not None and record == names:
            record = BadRow(line, "the names of the columns come again; remove the row")
        if options.limit is not None and count >= options.limit:
            return
        count += 1
        try:
            row = _row(line, record, columns, options)
        except InputError as error:
            raise InputError(f"{path}, {row_unit(format)} {line}: {error}") from error
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
    except InputError:
        raise
    except ValueError as error:
        return BadRow(line, str(error), is_empty=isinstance(error, EmptyText))
    return row
