"""Records of files with a row a line: delimited fields, with or without quotes, fastText's labels, and
texts."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple

from .bad_row import BadRow
from .encodings import BYTE_ORDER_MARK

FIELD_LIMIT = 1 << 26  # characters; csv's own limit of 131,072 is too low for long documents
LABEL_PREFIX = "__label__"  # before each label in fastText's format
LABEL_WORD = re.compile(rf"[\s,]*{LABEL_PREFIX}([^\s,]+)[\s,]*")


class Block(NamedTuple):
    """Records of a file: lists of fields, objects, texts or `BadRow`. `lines` has the number of each."""

    lines: Sequence[int]
    records: Sequence[Any]

    def values(self, key: int | str) -> list:
        """Return the values of a column, by its number or key."""
        return [record[key] for record in self.records]

    def without_first(self) -> Block:
        return Block(self.lines[1:], self.records[1:])

    def first(self, count: int) -> Block:
        return Block(self.lines[:count], self.records[:count])


def plain_blocks(blocks: Iterator[list[str]], delimiter: str) -> Iterator[Block]:
    """Yield the lines of a file without quotes as lists of fields, or as texts where there is no
    delimiter."""
    num_lines = 0
    for lines in blocks:
        numbers: Sequence[int] = range(num_lines + 1, num_lines + len(lines) + 1)
        num_lines += len(lines)
        if any(map(str.isspace, lines)):
            # A line of spaces is no row, but one of tabs is
            removed = " \r\n" if delimiter else None
            is_row = [line.strip(removed) != "" for line in lines]
            numbers = list(compress(numbers, is_row))
            lines = list(compress(lines, is_row))
        if delimiter:
            records = [line.rstrip("\r\n").split(delimiter) for line in lines]
        else:
            records = [line.rstrip("\r\n") for line in lines]
        if records:
            yield Block(numbers, records)


def without_separator_line(blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks of a delimited file without a first line such as `sep=,`, which is meant for Excel."""
    for block in blocks:
        if block.lines[0] == 1 and block.records[0] == ["sep=", ""]:
            block = block.without_first()
        if block.records:
            yield block


def quoted_records(lines: Iterator[str], delimiter: str, after_spaces: bool) -> Iterator[tuple[int, Any]]:
    """Yield the records of a file in which double quotes may enclose a field; `after_spaces`: spaces before
    such quotes are no part of the field."""
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=after_spaces)
    is_open = True
    while is_open:
        first = reader.line_num + 1
        try:
            record = next(reader, None)
            is_open = record is not None
            if record:
                if record[0].startswith(BYTE_ORDER_MARK):
                    record[0] = without_mark(record[0])
                yield first, record
        except csv.Error as error:
            # None of the lines of this record can be read, and each counts as a row
            cause = str(error).partition(" - ")[0]
            problem = (
                f"the record from line {first} to {reader.line_num} is not valid CSV ({cause}); double the "
                "quotes in quoted fields, or set --data.quoting never if quotes are part of the text"
            )
            for line in range(first, reader.line_num + 1):
                yield line, BadRow(line, problem)


def without_mark(field: str) -> str:
    """Return the first field of a record without the byte order mark of a file that was appended to another
    one, and without the quotes that enclose it behind the mark."""
    field = field.removeprefix(BYTE_ORDER_MARK)
    if len(field) > 1 and field[0] == field[-1] == '"':
        return field[1:-1].replace('""', '"')
    return field


def fasttext_records(lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    """Yield a list of text and label for each line: the words that begin with __label__ are its labels, the
    rest is its text. Several labels are a list."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            labels = LABEL_WORD.findall(line)
            text = LABEL_WORD.sub(" ", line).strip()
            yield number, [text, labels[0] if len(labels) == 1 else labels]
