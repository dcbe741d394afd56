"""The one way to read rows: a data file -> its columns, then batches of checked rows.

Training, prediction, reports, files that are sent to the server, Ray and corrected labels read by it. No row
is dropped without a message: an invalid one is in the batch with its problem.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..errors import InputError, listed
from .bad_row import BadRow
from .cells import as_text
from .column_facts import ColumnFacts
from .column_files import ArrowBlock
from .columns import MAX_COLUMNS, Columns, choose_columns
from .encodings import Source, Stream, wrong_character
from .header import is_header
from .read import FORMATS, ReadOptions, read_blocks, recognised
from .row_cells import free_names
from .row_checks import RowChecker, no_record
from .rows import Row, RowBatch
from .text_files import Block

FIRST_BLOCKS = 5  # blocks that are read to choose the columns
FIRST_ROWS = 10_000  # rows of them that show what a column is

Blocks = Iterator[Block] | Iterator[ArrowBlock]


class RowReader:
    """Reads the rows of a file; `open_rows` makes it. Its columns are known before the first row.

    `options` are as they were recognised, and `unit` is what the number of a row counts. `names` are the
    different names of all columns, of objects the keys of the first rows, and None for texts without columns.
    A file can be read again and again, a stream once.
    """

    def __init__(self, path: Source, checker: RowChecker, first_reading: Blocks) -> None:
        self.path = path
        self.options = checker.options
        self.columns = checker.columns
        self.names = checker.names
        self.unit = FORMATS[self.options.format].unit
        self._checker = checker
        # The blocks that were read to choose the columns are not read again
        self._first_reading: Blocks | None = first_reading

    def batches(self) -> Iterator[RowBatch]:
        """Yield all rows of the file in their order, up to the limit of the options. Raises InputError if the
        file cannot be read, or has no rows."""
        num_left = self.options.limit or sys.maxsize
        has_rows = False
        for block in self._blocks():
            if len(block.lines) > num_left:
                block = block.first(num_left)
            num_left -= len(block.lines)
            if len(block.lines):
                has_rows = True
                yield self._checker.batch(block)
            if num_left == 0:
                return
        if not has_rows:
            raise _without_rows(self.path, self.options, self.columns.header)

    def rows(self, with_records: bool = False) -> Iterator[Row | BadRow]:
        """Yield the rows one by one: valid ones as `Row`, others as `BadRow`."""
        for batch in self.batches():
            yield from batch.rows(with_records)

    def accept_empty_labels(self) -> None:
        """Take a row whose cell of the label is empty for a valid row without label."""
        self._checker = replace(self._checker, may_lack_label=True)

    @property
    def used_names(self) -> set[str]:
        """The names of the columns that hold text, second text or label."""
        if self.names is None or self.columns.are_keys:
            return set(map(str, self.columns.used))
        return {self.names[number] for number in self.columns.used}

    def _blocks(self) -> Blocks:
        blocks = self._first_reading
        self._first_reading = None
        if blocks is None:
            blocks = read_blocks(self.path, self.options)
        if self.columns.header is not None and not FORMATS[self.options.format].batches:
            return _without_header(blocks)
        return blocks


def open_rows(
    path: str | Source,
    options: ReadOptions,
    need_label: bool = True,
    find_pairs: bool = False,
    label_names: list[str] | None = None,
    accept_ids: bool = True,
    find_shares: bool = False,
) -> RowReader:
    """Return a reader of the rows of a file, whose columns are known.

    With `find_pairs`, rows may be pairs of texts although no setting says so; with `find_shares`, they may
    have distributions of labels in place of labels. With `label_names`, rows with
    other labels are invalid; with `accept_ids`, integers may be ids of labels. Raises InputError if the file
    cannot be read, has no rows, or lacks a chosen column.
    """
    file = path
    if not isinstance(path, Stream):
        file = Path(path)
    options = recognised(file, options, need_label)
    blocks = read_blocks(file, options)
    num_first = 1
    if not isinstance(file, Stream) and not FORMATS[options.format].batches:
        num_first = FIRST_BLOCKS
    first_blocks = list(islice(blocks, num_first))
    if not first_blocks:
        raise _without_rows(file, options, None)
    beginning = _Beginning.of(file, options, first_blocks)
    columns = beginning.columns(options, need_label, find_pairs, find_shares)
    facts = _with_sheet(_with_encoding(columns.facts, options), options)
    columns = replace(columns, facts=facts)
    if options.other_sheets:
        columns = replace(columns, assumed=columns.assumed | {"sheet": options.read_sheet})
    checker = RowChecker(
        path=path,
        options=options,
        columns=columns,
        names=beginning.names(columns, is_text=beginning.is_text(need_label)),
        label_names=label_names,
        accept_ids=accept_ids,
    )
    return RowReader(file, checker, chain(first_blocks, blocks))


def open_records(path: str | Path, options: ReadOptions) -> RowReader:
    """Return a reader of all cells of a table's rows, none of which is a text or a label. The first row has
    the names of the columns, but where rows are objects. Raises InputError as `open_rows`."""
    file = Path(path)
    options = recognised(file, options)
    if options.other_sheets:
        names = listed(map(repr, (options.read_sheet, *options.other_sheets)))
        raise InputError(f"{file}: one sheet with values is needed, found {names}; save it as another file")
    blocks = read_blocks(file, options)
    first_blocks = list(islice(blocks, 1))
    if not first_blocks:
        raise _without_rows(file, options, None)
    beginning = _Beginning.of(file, options, first_blocks)
    beginning.check_first()
    columns = Columns(text=(), pair=(), label=(), width=None)
    if isinstance(beginning.first, list):
        columns = replace(columns, width=len(beginning.first), header=beginning.first)
    names = beginning.names(columns, is_text=False)
    checker = RowChecker(path=path, options=options, columns=columns, names=names)
    return RowReader(file, checker, chain(first_blocks, blocks))


@dataclass(frozen=True)
class _Beginning:
    """The beginning of a file: its first record, with its place for messages, and the records below it. Files
    that keep columns have the names of these in place of a first record, and no records to look at."""

    where: str
    first: Any
    below: list
    has_names: bool

    @classmethod
    def of(cls, path: Source, options: ReadOptions, blocks: list) -> _Beginning:
        if FORMATS[options.format].batches:
            return cls(where=str(path), first=blocks[0].batch.schema.names, below=[], has_names=True)
        records: list = []
        for block in blocks:
            records += block.records
        where = f"{path}, {FORMATS[options.format].unit} {blocks[0].lines[0]}"
        return cls(where=where, first=records[0], below=records[1:FIRST_ROWS], has_names=False)

    def is_text(self, need_label: bool) -> bool:
        """Return whether the rows are texts without columns."""
        return isinstance(self.first, str) and not need_label

    def columns(
        self, options: ReadOptions, need_label: bool, find_pairs: bool, find_shares: bool = False
    ) -> Columns:
        """Return the columns of the file; raises InputError where they cannot be told."""
        if self.is_text(need_label):
            return Columns(text=(0,), pair=(), label=(), width=1, facts=ColumnFacts())
        self.check_first()
        first = self.first
        try:
            header = None
            sample = [first, *self.below]
            if self.has_names or self._has_header(options, need_label):
                header = first
                sample = self.below
            return choose_columns(
                self.where, first, sample, header, options, need_label, find_pairs, find_shares
            )
        except InputError as error:
            # A wrong encoding is reported first
            problem = wrong_character(" ".join(map(str, first)), "first row")
            if problem:
                raise InputError(f"{self.where}: {problem}") from error
            raise

    def names(self, columns: Columns, is_text: bool) -> list[str] | None:
        """Return different names of all columns. Those without names are called text, text_pair and column_N,
        from 0; objects have the keys of the first rows, and texts have no columns."""
        if is_text:
            return None
        if columns.are_keys:
            keys = dict.fromkeys(self.first)
            for record in self.below:
                if isinstance(record, dict):
                    keys.update(dict.fromkeys(record))
            return list(keys)
        if columns.header is not None:
            return free_names(map(as_text, columns.header))
        names = [f"column_{number}" for number in range(columns.width)]
        if len(columns.text) == 1:
            names[columns.text[0]] = "text"
        if len(columns.pair) == 1:
            names[columns.pair[0]] = "text_pair"
        return free_names(names)

    def check_first(self) -> None:
        """Raise InputError unless the first record is a row of a table."""
        first = self.first
        if isinstance(first, BadRow):
            raise InputError(f"{self.where}: the first row cannot be read: {first.problem}")
        if not isinstance(first, (list, dict)):
            raise InputError(f"{self.where}: the first row cannot be read: {no_record(first)}")
        if isinstance(first, list) and len(first) > MAX_COLUMNS:
            num_found = f"found {len(first):,}; set --data.format if another separator is meant"
            raise InputError(f"{self.where}: a row may have at most {MAX_COLUMNS:,} columns, {num_found}")

    def _has_header(self, options: ReadOptions, need_label: bool) -> bool:
        if not FORMATS[options.format].has_header:
            return False
        return is_header(self.where, self.first, self.below, options, need_label)


def _without_header(blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks without the first row."""
    first = next(blocks, None)
    if first is not None:
        yield first.without_first()
    yield from blocks


def _without_rows(path: Source, options: ReadOptions, header: list | None) -> InputError:
    message = f"{path}: there are no rows in the file"
    if header and FORMATS[options.format].has_header:
        message += ", only a header"
    return InputError(message)


def _with_sheet(facts: ColumnFacts, options: ReadOptions) -> ColumnFacts:
    """Return the facts with the sheet that was set, or chosen of several."""
    if options.other_sheets:
        others = listed(map(repr, options.other_sheets))
        return replace(facts, sheet=repr(options.read_sheet), other_sheets=others)
    if options.sheet is None:
        return facts
    if options.read_sheet is not None:
        return replace(facts, sheet=repr(options.read_sheet))
    if options.sheet_if_there:
        return facts
    return replace(facts, unused_sheet=repr(options.sheet))


def _with_encoding(facts: ColumnFacts, options: ReadOptions) -> ColumnFacts:
    """Return the facts with the encoding, where it is not UTF-8 or not the one that was set."""
    if options.overruled_encoding:
        return replace(facts, encoding=options.encoding, overruled_encoding=options.overruled_encoding)
    if FORMATS[options.format].magic or options.encoding == "utf-8":
        return facts
    return replace(facts, encoding=options.encoding)
