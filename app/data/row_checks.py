"""Records of a file -> checked rows: the text, second text and label of each, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, excerpt
from .bad_row import BadRow, bad_row_message
from .cells import EmptyText, as_text, clean_text, join_texts, number_as_text, value_of
from .column_files import ArrowBlock
from .columns import Columns
from .encodings import wrong_character
from .first_rows import Key
from .label_shares import (
    PROBABILITIES,
    LabelShares,
    ShareColumns,
    are_corrected,
    is_blank,
    read_probabilities,
    read_votes,
)
from .labels import label_form
from .read import FORMATS, ReadOptions
from .row_cells import Cells, FieldCells, ObjectCells, TextCells, TypedCells
from .rows import RowBatch
from .text_files import Block

MAX_SHOWN_FIELDS = 20  # fields of a row of another width that a message shows

# The keys are indices of rows in the batch, the values say what is wrong with these rows
Problems = dict[int, str | ValueError]


@dataclass(frozen=True)
class RowChecker:
    """Checks the records of a file with these columns. `names` are the different names of all columns; None
    where rows are texts without columns. With `label_names`, rows with other labels are invalid; with
    `accept_ids`, integers may be ids of labels. With `may_lack_label`, an empty cell is no label: None."""

    path: object
    options: ReadOptions
    columns: Columns
    names: list[str] | None
    label_names: list[str] | None = None
    accept_ids: bool = True
    may_lack_label: bool = False

    def batch(self, block: Block | ArrowBlock) -> RowBatch:
        """Return the rows of a block. The rules are asked of whole columns, and of single rows only where
        one breaks a rule."""
        shaped_block = block
        shape_problems: Problems = {}
        if isinstance(block, Block):
            shaped_block, shape_problems = self._shaped(block)
        texts: list = []
        pairs = None
        labels = None
        shares = None
        text_problems: Problems = {}
        pair_problems: Problems = {}
        label_problems: Problems = {}
        if self.columns.text:
            texts, text_problems = self._texts(shaped_block, self.columns.text, "text")
        if self.columns.pair:
            pairs, pair_problems = self._texts(shaped_block, self.columns.pair, "second text")
        if self.columns.label:
            labels, label_problems = self._labels(shaped_block)
        if self.columns.shares is not None:
            shares, share_problems = self._shares(shaped_block, self.columns.shares)
            labels, label_problems = self._chosen_labels(
                shaped_block, labels, label_problems, shares, share_problems
            )
        # A row with several problems has the one of its shape, else of its text, and of its label last
        problems = label_problems | pair_problems | text_problems | shape_problems
        bad_rows = {}
        for index in sorted(problems):
            problem = problems[index]
            is_empty = isinstance(problem, EmptyText)
            bad_rows[index] = BadRow(
                line=block.lines[index],
                problem=str(problem),
                is_empty=is_empty,
            )
        return RowBatch(
            lines=block.lines,
            texts=texts,
            pairs=pairs,
            labels=labels,
            problems=bad_rows,
            cells=self._cells(block, texts, bad_rows),
            shares=shares,
        )

    def _cells(self, block: Block | ArrowBlock, texts: list[str], bad_rows: dict[int, BadRow]) -> Cells:
        if isinstance(block, ArrowBlock):
            return TypedCells(self.names, block)
        if self.columns.are_keys:
            return ObjectCells(block.records)
        if self.names is not None:
            separator = FORMATS[self.options.format].delimiter or ","
            return FieldCells(self.names, block.records, separator)
        valid_texts: list[str | None] = list(texts)
        for index in bad_rows:
            valid_texts[index] = None
        return TextCells(block.lines, valid_texts)

    # The shape of records

    def _shaped(self, block: Block) -> tuple[Block, Problems]:
        """Return the block with records that all have the columns, and what is wrong with those that have
        not; these have empty cells then."""
        records = block.records
        columns = self.columns
        if columns.width == 1 and not columns.label:
            records = _texts_as_lists(records)
        problems: Problems = {}
        if columns.are_keys and columns.shares is not None:
            records = _with_keys(records, columns.label + columns.shares.read_keys)
        if not self._all_have_the_columns(records):
            records = list(records)
            empty_record = dict.fromkeys(columns.used)
            if columns.shares is not None:
                empty_record |= dict.fromkeys(columns.shares.read_keys)
            for index, record in enumerate(records):
                problem = self.problem_of_shape(record)
                if problem is not None:
                    problems[index] = problem
                    records[index] = empty_record
        return Block(block.lines, records), problems

    def _all_have_the_columns(self, records: Sequence) -> bool:
        """Return whether all records are lists of fields as wide as the first row, and none is the header."""
        if set(map(type, records)) != {list}:
            return False
        if self.columns.header is not None and self.columns.header in records:
            return False
        return set(map(len, records)) == {self.columns.width}

    def problem_of_shape(self, record: Any) -> str | None:
        """Return why a record is no row with these columns, or None."""
        columns = self.columns
        if isinstance(record, BadRow):
            return record.problem
        if columns.header is not None and record == columns.header:
            return "the names of the columns come again; remove the row"
        if columns.are_keys and isinstance(record, dict):
            for name in columns.used:
                if name not in record:
                    record_found = f"found {excerpt(record)}; add it or remove the row"
                    return f"the column {excerpt(name)} is missing, {record_found}"
            return None
        if columns.are_keys or not isinstance(record, list):
            return no_record(record)
        if len(record) == columns.width:
            return None
        fields = []
        for field in record[:MAX_SHOWN_FIELDS]:
            if not isinstance(field, str):
                field = excerpt(field)
            fields.append(field)
        row = excerpt(" | ".join(fields))
        return (
            f"{columns.width} columns are needed as in the first row, found {len(record)}: {row}; remove "
            "extra separators (or, in CSV, enclose it in double quotes) or fill in what is missing"
        )

    # Texts

    def _texts(self, block: Block | ArrowBlock, keys: tuple[Key, ...], role: str) -> tuple[list, Problems]:
        """Return the cleaned texts of the columns `keys`, joined where they are several. `role` says what
        they are: it is a key of `SETTING`."""
        cells = self._cells_of_texts(block, keys)
        texts = list(map(str.strip, _without_others(cells)))
        problems: Problems = {}
        for index in self._doubtful(texts, role):
            try:
                texts[index] = clean_text(cells[index], self.options.remove_spaces, role)
            except ValueError as error:
                problems[index] = error
        return texts, problems

    def _cells_of_texts(self, block: Block | ArrowBlock, keys: tuple[Key, ...]) -> list:
        columns = []
        for key in keys:
            column = block.values(key)
            if FORMATS[self.options.format].has_number_cells:
                column = list(map(number_as_text, column))
            columns.append(column)
        if len(columns) == 1:
            return columns[0]
        return list(map(join_texts, zip(*columns, strict=True)))

    def _doubtful(self, texts: list[str], role: str) -> Sequence[int]:
        """Return the indices of texts that have to be looked at alone. A text that begins with a character
        that can be seen is not empty."""
        if self.options.remove_spaces or wrong_character("".join(texts), role):
            return range(len(texts))
        return [index for index, text in enumerate(texts) if not (text and text[0].isprintable())]

    # Labels

    def _labels(self, block: Block | ArrowBlock) -> tuple[list[str | None], Problems]:
        """Return the label text of each row, and what is wrong with labels. Equal cells are read once."""
        columns = list(map(block.values, self.columns.label))
        cells = columns[0]
        if self.options.label_columns is not None:
            cells = list(zip(*columns, strict=True))
        keys: list = cells
        if set(map(type, cells)) != {str}:
            keys = _keys_of_cells(cells)
        # From the last to the first, so that the first index of each key remains
        first_indices = dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))
        labels = {}
        errors = {}
        for index in sorted(first_indices.values()):
            key = keys[index]
            if self.may_lack_label and not as_text(cells[index]).strip():
                continue
            try:
                labels[key] = self._label(cells[index])
            except InputError as error:
                unit = FORMATS[self.options.format].unit
                raise InputError(bad_row_message(self.path, unit, block.lines[index], error)) from error
            except ValueError as error:
                errors[key] = error
        problems = {}
        if errors:
            for index, key in enumerate(keys):
                if key in errors:
                    problems[index] = errors[key]
        return list(map(labels.get, keys)), problems

    def _label(self, cell: Any) -> str:
        """Return the label text of a cell. Raises ValueError for a wrong row, InputError if all are."""
        form = label_form(self.options.task)
        # In JSON, a list is written as a list, and not into a text
        if not (isinstance(cell, str) and self.options.format in ("json", "jsonl")):
            cell = value_of(cell)
        label = form.text(cell, self.options)
        if self.label_names:
            unknown = form.unknown(label, self.label_names, self.accept_ids)
            if unknown:
                raise ValueError(f"unknown label {unknown}; fix the row or set --data.labels")
        return label

    # Distributions of labels

    def _shares(self, block: Block | ArrowBlock, columns: ShareColumns) -> tuple[LabelShares, Problems]:
        """Return the distributions of the rows, and what is wrong with them."""
        form = label_form(self.options.task)
        cells = list(map(block.values, columns.keys))
        if columns.content == PROBABILITIES:
            return read_probabilities(columns, cells, form.has_several)
        shares, problems = read_votes(cells[0], form, self.options)
        for index, problem in problems.items():
            if isinstance(problem, InputError):
                unit = FORMATS[self.options.format].unit
                raise InputError(bad_row_message(self.path, unit, block.lines[index], problem)) from problem
        if self.label_names:
            for number, label in enumerate(shares.labels):
                unknown = form.unknown(form.text_of_labels([label]), self.label_names, self.accept_ids)
                if unknown is None:
                    continue
                for index in np.flatnonzero(shares.values[:, number]).tolist():
                    problems[index] = (
                        f"unknown label {unknown} among the votes; fix the row or set --data.labels"
                    )
        return shares, problems

    def _chosen_labels(
        self,
        block: Block | ArrowBlock,
        labels: list[str | None] | None,
        label_problems: Problems,
        shares: LabelShares,
        share_problems: Problems,
    ) -> tuple[list[str | None], Problems]:
        """Return the label text of each row, and what is wrong with labels and distributions. A row has one
        of both, or both, of which one counts: then `shares.is_given` is true only for rows that are trained
        on their distribution. The label of these is the most probable one."""
        form = label_form(self.options.task)
        num_rows = len(block.lines)
        is_label_blank = [True] * num_rows
        if labels is None:
            labels = [None] * num_rows
        else:
            [cells] = map(block.values, self.columns.label)
            is_label_blank = list(map(is_blank, cells))
        follows_label = np.full(num_rows, self.columns.shares.follows_label)
        if self.columns.label and not form.has_several:
            answers = None
            if self.columns.shares.answer is not None:
                answers = block.values(self.columns.shares.answer)
            follows_label |= are_corrected(labels, shares, answers)
        problems: Problems = {}
        for index in range(num_rows):
            has_shares = bool(shares.is_given[index]) or index in share_problems
            counts_label = follows_label[index] or not has_shares
            if counts_label and not is_label_blank[index]:
                shares.is_given[index] = False
                if index in label_problems:
                    problems[index] = label_problems[index]
            elif index in share_problems:
                problems[index] = share_problems[index]
            elif has_shares:
                labels[index] = form.text_of_labels(shares.answers[index])
            elif form.has_several and self.columns.label:
                # Its label is blank, which says that it has none
                continue
            else:
                needed = f"a label or {self.columns.shares.content}"
                problems[index] = f"a row needs {needed}, found none; fill one in or remove the row"
        return labels, problems


def _with_keys(records: Sequence, keys: tuple[Key, ...]) -> list:
    """Return records of which objects have all of the keys, with None where they lacked one."""
    empty = dict.fromkeys(keys)
    with_keys = []
    for record in records:
        if isinstance(record, dict):
            record = empty | record
        with_keys.append(record)
    return with_keys


def _texts_as_lists(records: Sequence) -> list:
    """Return records of which texts are lists of one field."""
    lists = []
    for record in records:
        if isinstance(record, str):
            record = [record]
        lists.append(record)
    return lists


def _without_others(cells: list) -> list[str]:
    """Return cells with an empty text in place of what is no text."""
    if set(map(type, cells)) == {str}:
        return cells
    texts = []
    for cell in cells:
        if type(cell) is not str:
            cell = ""
        texts.append(cell)
    return texts


def _keys_of_cells(cells: Sequence) -> list[str | int]:
    """Return each text as it is, and the index of each cell that is none: other values may be equal and yet
    different labels, such as 1 and true."""
    keys: list[str | int] = []
    for index, cell in enumerate(cells):
        if type(cell) is str:
            keys.append(cell)
        else:
            keys.append(index)
    return keys


def no_record(record: Any) -> str:
    """Return the problem of a record that is neither an array nor an object like the first row."""
    rule = "an array of text and label, or an object like the first row"
    return f"{rule}, is needed, found {excerpt(record)}; fix the row"
