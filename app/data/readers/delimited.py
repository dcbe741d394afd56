"""CSV, TSV and the like: fields with a character between them, with or without quotes around them."""

import csv
from collections.abc import Collection, Iterator
from typing import Any

from ...words import _
from ..text_files import read_lines
from . import BadRow, Reader
from .plain_text import lines_without_ends

# Characters in one CSV field; csv's own limit of 131,072 is too low for long documents
FIELD_LIMIT = 1 << 26


class CsvReader(Reader):
    """Fields between commas; double quotes may enclose them."""

    delimiter = ","
    is_quoted = True
    has_lines = True

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, Any]]:
        """Yield first line and fields of each record."""
        quoting = self.options.quoting
        if quoting == "double" or (quoting == "auto" and self.is_quoted):
            yield from self._quoted_records()
            return
        for number, line in lines_without_ends(self):
            yield number, line if isinstance(line, BadRow) else line.split(self.delimiter)

    def _quoted_records(self) -> Iterator[tuple[int, Any]]:
        csv.field_size_limit(FIELD_LIMIT)
        lines = read_lines(self.path, self.options.encoding, self.span)
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            first = reader.line_num + self.first_line
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                following = reader.line_num + self.first_line
                yield first, BadRow(first, _problem(str(error), first, following - 1))
                # None of these lines can be read: each counts
                for line in range(first + 1, following):
                    yield line, BadRow(line, f"part of the invalid record that begins in line {first}")
                continue
            if record:
                yield first, record


class TsvReader(CsvReader):
    """Fields between tabs; double quotes are part of the text."""

    delimiter = "\t"
    is_quoted = False


class SemicolonReader(CsvReader):
    """Fields between semicolons; double quotes may enclose them."""

    delimiter = ";"


class PipeReader(TsvReader):
    """Fields between vertical bars; double quotes are part of the text."""

    delimiter = "|"


def num_fields(reader: type[CsvReader], lines: list[str]) -> int:
    """Return how many fields each of these lines has, 0 where they do not all have the same number."""
    if reader.is_quoted:
        # Only some lines: a quote may stay open
        counts = {len(record) for record in csv.reader(lines, delimiter=reader.delimiter) if record}
    else:
        counts = {line.count(reader.delimiter) + 1 for line in lines}
    return counts.pop() if len(counts) == 1 else 0


def _problem(error: str, first: int, last: int) -> str:
    if error.startswith("new-line character"):
        return (
            "a carriage return is outside quotes; end lines with LF or CRLF, or enclose the text in double "
            "quotes"
        )
    record = _("the record")
    if last > first:
        record = _("the record from line {first} to {last}").format(first=first, last=last)
    return _(
        "{record} is not valid CSV ({error}); double the quotes inside quoted fields, or set --data.quoting "
        "none if quotes are part of the text"
    ).format(record=record, error=error)
