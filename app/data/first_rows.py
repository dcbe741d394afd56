"""The columns of a file from its first rows, and all its records."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from ..config.file_formats import FileFormat
from ..errors import InputError
from .columns import Columns, columns_of_first, resolve_columns
from .headers import has_header, names_columns
from .readers import BadRow, Reader, ReadOptions
from .text_files import Source, Span, check_characters

# Rows, and characters in them, that show which columns are texts and labels: a file may be in the order of
# its labels
LOOK_AHEAD = 20_000
LOOK_AHEAD_CHARACTERS = 16_000_000
# Columns of a row without names, as in Excel; a long line of separators must not take minutes
MAX_COLUMNS = 16_384


class Looks(NamedTuple):
    """What is looked for in a file; see `read_rows`."""

    need_label: bool
    find_pairs: bool
    keep_records: bool
    span: Span | None = None


def open_records(
    path: Source,
    reader: Reader,
    format: FileFormat,
    options: ReadOptions,
    looks: Looks,
    notes: dict,
) -> tuple[list | None, Columns | None, Iterator[tuple[int, Any]]]:
    """Return the names of the columns and the columns to use, both None without, and the records after a
    header. `notes` as in `read_rows`, `place` being known. Without labels one record is looked at."""
    need_label, find_pairs = looks.need_label, looks.find_pairs
    names = reader.column_names()
    if names is not None:
        columns = resolve_columns(str(path), options, names, len(names), need_label, (), find_pairs)
        notes.update(columns=columns.described, used=columns, names=names)
        reader.span = looks.span
        wanted = [columns.text, columns.pair, *columns.labels]
        return names, columns, reader.records(range(len(names)) if looks.keep_records else wanted)
    # Texts without labels may come from a stream, one at a time
    first, records = _look_ahead(reader.records(), LOOK_AHEAD if need_label else 1, options.limit)
    if not first:
        notes.update(columns="", used=None, names=None)
        return None, None, records
    line, record = first[0]
    below = [record for _, record in first[1:]]
    where = f"{path}, {notes['place']} {line}"
    if isinstance(record, list) and len(record) > MAX_COLUMNS:
        raise InputError(
            f"{where}: a row may have at most {MAX_COLUMNS:,} columns, found {len(record):,}; set "
            "--data.format if another separator is meant"
        )
    is_header = format.has_header and _is_header(where, record, options, need_label, below)
    columns = _first_columns(where, record, is_header, options, need_label, below, find_pairs)
    names = record if is_header else None
    notes.update(columns=columns.described if columns else "", used=columns, names=names)
    notes["is_first_row"] = format.has_header and options.header is None and not is_header
    if looks.span is not None:
        reader.span = looks.span
        return names, columns, reader.records()
    if is_header:
        next(records)
    return names, columns, records


def _look_ahead(
    records: Iterator[tuple[int, Any]], most: int, limit: int | None
) -> tuple[list[tuple[int, Any]], Iterator[tuple[int, Any]]]:
    """Return the first records, and an iterator that begins with them again."""
    first, characters = [], 0
    for numbered in islice(records, most if limit is None else min(most, limit + 1)):
        first.append(numbered)
        record = numbered[1]
        values = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
        characters += sum(len(value) for value in values if isinstance(value, str))
        if characters > LOOK_AHEAD_CHARACTERS:
            break
    return first, chain(first, records)


def _is_header(
    where: str, record: list | BadRow, options: ReadOptions, need_label: bool, below: list
) -> bool:
    """Return whether the first record of a table is a header; raises InputError if that is not clear."""
    if isinstance(record, BadRow):
        # Or the next line would be read as the header
        if options.header or names_columns(options):
            raise InputError(f"{where}: the header cannot be read: {record.problem}")
        return False
    rows = [row for row in below if isinstance(row, list)]
    return has_header(where, record, options, need_label, rows)


def _first_columns(
    where: str,
    record: Any,
    is_header: bool,
    options: ReadOptions,
    need_label: bool,
    below: list,
    find_pairs: bool,
) -> Columns | None:
    """Return the columns from the first record, None for an invalid one; reports a wrong encoding first."""
    try:
        if is_header:
            names = [str(name).strip() for name in record]
            check_characters(" ".join(names), "header")
            rows = [row for row in below if isinstance(row, list) and len(row) == len(names)]
            return resolve_columns(where, options, names, len(names), need_label, rows, find_pairs)
        return columns_of_first(where, options, record, need_label, below, find_pairs)
    except ValueError as error:
        if isinstance(record, (list, dict)):
            try:
                check_characters(" ".join(value for value in record if isinstance(value, str)), "first row")
            except ValueError as cause:
                raise InputError(f"{where}: {cause}") from error
        raise
