"""Files of labelled text -> validated rows, one at a time. An invalid row becomes a `BadRow`, and the caller
decides whether that stops the run. No row is dropped without a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config.file_formats import FORMATS
from ..errors import InputError, excerpt
from ..words import _
from .cells import EmptyText, clean_text
from .columns import Columns
from .file_encoding import UTF_8, file_encoding
from .first_rows import Looks, open_records
from .formats import file_format, open_reader
from .readers import BadRow, ReadOptions, bad_row_message
from .text_files import Source, Span, Stream

if TYPE_CHECKING:
    from .label_form import LabelForm


class Row(NamedTuple):
    """One valid row; `line` is its first line in the file (in JSON its element, in Parquet and Excel its
    row), from 1. `record` is the whole of it, a list of fields or an object, where `read_rows` keeps it."""

    line: int
    text: str
    pair: str | None
    label: str | None
    record: Any = None

    @property
    def texts(self) -> str | tuple[str, str]:
        """The text, or the pair of texts."""
        return self.text if self.pair is None else (self.text, self.pair)


def read_rows(
    path: str | Source,
    options: ReadOptions,
    need_label: bool = True,
    notes: dict | None = None,
    keep_records: bool = False,
    find_pairs: bool = False,
    span: Span | None = None,
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order: valid ones as `Row`, others as `BadRow`; if `keep_records`, with
    records.

    Blank lines are not rows. The format `text`, one text per line, has no labels (`need_label` False). If
    `notes` is given, it receives `columns` (which are used and which not, in words), `used` (the same as
    `Columns`), `names` (of all columns, None where they have none), `place` (what a row's number counts),
    `multiline` (the number of CSV records over several lines), `first_multiline` (the line of the first one),
    and `is_first_row` (whether a header is possible and the first line was not taken for one). With
    `find_pairs`, rows may be pairs of texts although no setting says so. With `options.limit`, only the first
    rows are read, with `span`, of `cut_file`, those in it. Raises InputError if the file cannot be read, has
    no rows, or lacks a chosen column.
    """
    path = path if isinstance(path, Stream) else Path(path)
    notes = {} if notes is None else notes
    options = replace(options, encoding=file_encoding(path, options.encoding))
    format = file_format(path, options.format, options.encoding)
    reader, properties = open_reader(path, options, format), FORMATS[format]
    notes.update(place=properties.row_unit, multiline=0, is_first_row=False)
    looks = Looks(need_label, find_pairs, keep_records, span)
    # It imports NumPy, which predict --help does without
    from .label_forms import label_form

    form = label_form(options.task)
    names, columns, records = open_records(path, reader, properties, options, looks, notes)
    if not properties.magic and options.encoding.lower() not in UTF_8:
        notes["columns"] = f"{notes['columns']}; encoding {options.encoding}".removeprefix("; ")
    count = 0
    for line, record in records:
        if names is not None and record == names:
            record = BadRow(line, "the names of the columns come again; remove the row")
        if options.limit is not None and count >= options.limit:
            return
        count += 1
        try:
            row = _row(line, record, columns, options, form)
        except InputError as error:
            raise InputError(bad_row_message(str(path), properties.row_unit, line, error)) from error
        if properties.is_delimited and isinstance(row, Row) and any("\n" in field for field in record):
            notes["multiline"] += 1
            notes.setdefault("first_multiline", line)
        yield row._replace(record=record) if keep_records and record is not row else row
    if count == 0:
        raise InputError(
            (
                _("{path}: there are no rows in the file, only a header")
                if names and properties.has_header
                else _("{path}: there are no rows in the file")
            ).format(path=path)
        )


def text_rows(texts: Iterable[str | tuple[str, str]], options: ReadOptions) -> Iterator[Row | BadRow]:
    """Yield texts, or pairs of them, that are in no file as rows without labels, numbered from 1."""
    for line, text in enumerate(texts, 1):
        is_pair = isinstance(text, tuple)
        columns = Columns(0, 1, None, 2, "") if is_pair else Columns(0, None, None, 1, "")
        yield _row(line, list(text) if is_pair else text, columns, options)


def _row(
    line: int, record: Any, columns: Columns | None, options: ReadOptions, form: LabelForm | None = None
) -> Row | BadRow:
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
            _(
                "{width} columns are needed as in the first row, found {found}: {row}; remove extra "
                "separators from the text (or, in CSV, enclose it in double quotes) or fill in what is "
                "missing"
            ).format(width=columns.width, found=len(record), row=excerpt(shown)),
        )
    try:
        text, pair, label = columns.pick(record)
        row = Row(
            line,
            clean_text(text, options.remove_spaces, "text"),
            None if columns.pair is None else clean_text(pair, options.remove_spaces, "second text"),
            None if columns.label is None else form.text(label, options),
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
