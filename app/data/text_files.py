"""Records of files with a row a line: delimited fields, with or without quotes, fastText's labels, and
texts."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import compress, islice
from operator import itemgetter
from typing import Any, NamedTuple

from .bad_row import BadRow
from .encodings import BLOCK_ROWS, BYTE_ORDER_MARK

FIELD_LIMIT = 1 << 26  # characters; csv's own limit of 131,072 is too low for long documents
LINE_BREAK = re.compile(r"\r\n?|\n")
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
            removed = None
            if delimiter:
                # A line of spaces is no row, but one of tabs is
                removed = " \r\n"
            contents = [line.strip(removed) for line in lines]
            numbers = list(compress(numbers, contents))
            lines = list(compress(lines, contents))
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


def quoted_blocks(lines: Iterator[str], delimiter: str, after_spaces: bool) -> Iterator[Block]:
    """Yield the records of a file in which double quotes may enclose a field; `after_spaces`: spaces before
    such quotes are no part of the field."""
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=after_spaces)
    numbers: list[int] = []
    records: list = []
    for part in _quoted_parts(reader):
        numbers += part.lines
        records += part.records
        if len(records) >= BLOCK_ROWS:
            yield Block(numbers, records)
            numbers = []
            records = []
    if records:
        yield Block(numbers, records)


def _quoted_parts(reader: Any) -> Iterator[Block]:
    """Yield the records of a CSV reader, many at a time; of one that cannot be read each line is invalid."""
    is_open = True
    while is_open:
        first_line = reader.line_num + 1
        records: list[list[str]] = []
        cause = None
        try:
            # The records before one that cannot be read remain in the list
            records.extend(islice(reader, BLOCK_ROWS))
            is_open = len(records) == BLOCK_ROWS
        except csv.Error as error:
            cause = str(error).partition(" - ")[0]
        numbers = _first_lines(records, first_line, reader.line_num)
        next_line = numbers[-1]
        yield _without_marks(Block(numbers[:-1], records))
        if cause is not None:
            yield from _broken_lines(next_line, reader.line_num, cause)


def _first_lines(records: list[list[str]], first_line: int, last_line: int) -> Sequence[int]:
    """Return the first line of each record, and that of what follows them, in lines up to `last_line`."""
    num_lines = last_line + 1 - first_line
    if num_lines == len(records):
        # Nearly always each record is one line
        return range(first_line, last_line + 2)
    numbers = [first_line]
    for record in records:
        num_breaks = 0
        for field in record:
            num_breaks += len(LINE_BREAK.findall(field))
        numbers.append(numbers[-1] + 1 + num_breaks)
    return numbers


def _without_marks(block: Block) -> Block:
    """Return records without blank lines, and without marks of files that were appended to another one."""
    numbers, records = block
    if not all(records):
        numbers = list(compress(numbers, records))
        records = list(filter(None, records))
    if BYTE_ORDER_MARK in "".join(map(itemgetter(0), records)):
        for record in records:
            if record[0].startswith(BYTE_ORDER_MARK):
                record[0] = without_mark(record[0])
    return Block(numbers, records)


def _broken_lines(first: int, last: int, cause: str) -> Iterator[Block]:
    """Yield the lines of a record that cannot be read: each counts as a row."""
    problem = (
        f"the record from line {first} to {last} is not valid CSV ({cause}); double the quotes in quoted "
        "fields, or set --data.quoting never if quotes are part of the text"
    )
    for start in range(first, last + 1, BLOCK_ROWS):
        numbers = range(start, min(start + BLOCK_ROWS, last + 1))
        yield Block(numbers, [BadRow(number, problem) for number in numbers])


def is_enclosed(field: str) -> bool:
    """Return whether double quotes stand around a field."""
    return len(field) > 1 and field[0] == field[-1] == '"'


def without_mark(field: str) -> str:
    """Return the first field of a record without the byte order mark of a file that was appended to another
    one, and without the quotes that enclose it behind the mark."""
    field = field.removeprefix(BYTE_ORDER_MARK)
    if is_enclosed(field):
        return field[1:-1].replace('""', '"')
    return field


def fasttext_records(lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    """Yield a list of text and label for each line: the words that begin with __label__ are its labels, the
    rest is its text. Several labels are a list."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            labels = LABEL_WORD.findall(line)
            text = LABEL_WORD.sub(" ", line).strip()
            if len(labels) == 1:
                yield number, [text, labels[0]]
            else:
                yield number, [text, labels]
