"""Files of labelled text -> validated rows. An invalid row becomes a `BadRow`, and the caller decides whether
that stops the run. No row is dropped without a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, excerpt
from ..words import _
from .cells import EmptyText, clean_text, clean_texts, value_of
from .columns import Columns, choose_columns, is_header
from .files import Source, Stream, check_characters
from .long_texts import BETWEEN_TEXTS
from .read import FORMATS, BadRow, Chunk, ReadOptions, bad_row_message, column_names, read_chunks, recognised

MAX_COLUMNS = 16_384  # of a row, as in Excel; a long line of separators must not take minutes
FIRST_ROWS = 10_000  # rows whose values show which columns are texts and labels


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


class Checked(NamedTuple):
    """Rows of a file: lists of equal lengths, and the invalid rows by their positions in these."""

    numbers: list[int]
    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    records: list
    bad: dict[int, BadRow]


class RowReader:
    """Reads the rows of a file. With `find_pairs`, rows may be pairs of texts although no setting says so.

    Known once reading has begun: `unit`, what a row's number counts; `used`, the columns, None without any,
    and `columns`, the same in words; `names` of all columns; `multiline`, the number of records over several
    lines so far, and `first_multiline`, the line of the first one.
    """

    unit: str
    used: Columns | None = None
    names: list | None = None
    columns = ""
    multiline = 0
    first_multiline: int | None = None

    def __init__(
        self, path: str | Source, options: ReadOptions, need_label: bool = True, find_pairs: bool = False
    ) -> None:
        self.path: Source = path if isinstance(path, Stream) else Path(path)
        self.options, self.need_label, self.find_pairs = options, need_label, find_pairs

    def rows(self, keep_records: bool = False) -> Iterator[Row | BadRow]:
        """Yield the rows in order: valid ones as `Row`, others as `BadRow`; if `keep_records`, with records.
        Raises InputError if the file cannot be read, has no rows, or lacks a chosen column."""
        for numbers, texts, pairs, labels, records, bad in self.chunks(keep_records):
            none = [None] * len(numbers)
            records = records if keep_records else none
            for at, row in enumerate(map(Row, numbers, texts, pairs or none, labels or none, records)):
                if at not in bad:
                    yield row
                else:
                    yield bad[at] if isinstance(row.record, BadRow) else bad[at]._replace(record=row.record)

    def chunks(self, keep_records: bool = False) -> Iterator[Checked]:
        """Yield the rows of the file, validated; raises InputError as `rows` does."""
        count, limit = 0, self.options.limit
        for numbers, records in self._records(keep_records):
            if limit is not None:
                numbers, records = numbers[: limit - count], records[: limit - count]
            if records:
                count += len(records)
                yield self._checked(numbers, records)
            if count == limit:
                return
        if count == 0:
            said = _("{path}: there are no rows in the file")
            if self.names and FORMATS[self.options.format].has_header:
                said = _("{path}: there are no rows in the file, only a header")
            raise InputError(said.format(path=self.path))

    def _records(self, keep_records: bool) -> Iterator[Chunk]:
        """Find the columns, by the first records, and return the records after a header."""
        path, options = self.path, recognised(self.path, self.options, self.need_label)
        self.options, self.unit = options, FORMATS[options.format].row_unit
        self.multiline, self.first_multiline = 0, None
        # It imports NumPy, which predict --help does without
        from .labels import label_form

        self.form = label_form(options.task)
        if options.format == "parquet":
            self.names = column_names(path)
            self._choose(str(path), self.names, self.names, [])
            return read_chunks(path, options, None if keep_records else self.used.used)
        chunks = ((numbers, records) for numbers, records in read_chunks(path, options) if records)
        numbers, records = next(chunks, ((), ()))
        if not records:
            return chunks
        where, record, below = f"{path}, {self.unit} {numbers[0]}", records[0], records[1:]
        if isinstance(record, list) and len(record) > MAX_COLUMNS:
            found = f"found {len(record):,}; set --data.format if another separator is meant"
            raise InputError(f"{where}: a row may have at most {MAX_COLUMNS:,} columns, {found}")
        try:
            may_have = FORMATS[options.format].has_header
            has_names = may_have and is_header(where, record, options, self.need_label, below[:FIRST_ROWS])
            if has_names:
                self.names, numbers, records = record, numbers[1:], below
            names = [str(name).strip() for name in record] if has_names else None
            self._choose(where, record, names, records[:FIRST_ROWS])
        except InputError as error:
            try:
                # A wrong encoding is reported first
                check_characters(" ".join(map(str, record)), "first row")
            except ValueError as wrong:
                raise InputError(f"{where}: {wrong}") from error
            raise
        return chain([(numbers, records)], chunks)

    def _choose(self, where: str, record: Any, names: list | None, rows: list) -> None:
        """Choose the columns of records like this one, by `names` and by the first rows; there are none if
        that is invalid."""
        options, is_object = self.options, isinstance(record, dict)
        if is_object:
            names = list(record)
            rows = [list(map(row.get, names)) for row in rows if isinstance(row, dict)]
        if isinstance(record, (list, dict)):
            rows = [row for row in rows if isinstance(row, list) and len(row) == len(record)]
            are_labels = self.form.are_labels if self.need_label else None
            used = self.used = choose_columns(where, options, names, rows, are_labels, self.find_pairs)
            if is_object:
                roles = (tuple(map(names.__getitem__, role)) for role in (used.text, used.pair, used.label))
                self.used = Columns(*roles, None, used.described, used.assumed)
        elif isinstance(record, str) and not self.need_label:
            # Plain text, or JSON Lines of plain strings
            self.used = Columns((0,), (), (), 1, "text '0'")
        self.columns = self.used.described if self.used else ""
        if not FORMATS[options.format].magic and options.encoding != "utf-8":
            self.columns = f"{self.columns}; encoding {options.encoding}".removeprefix("; ")

    def _checked(self, numbers: list[int], records: list) -> Checked:
        """Return validated rows: the rules are asked of whole columns, and of single rows that break one."""
        used, options, found = self.used, self.options, records
        if used is not None and used.width == 1 and not used.label:
            # Plain text
            found = [[record] if isinstance(record, str) else record for record in records]
        bad = self._bad_shapes(numbers, found)
        if used is None:
            return Checked(numbers, [None] * len(numbers), None, None, records, bad)
        if bad:
            empty = dict.fromkeys(used.used)
            found = [empty if at in bad else record for at, record in enumerate(found)]

        def columns(keys: tuple, are_one: bool) -> list:
            values = [[record[key] for record in found] for key in keys]
            return values[0] if are_one else list(zip(*values, strict=True))

        def cleaned(keys: tuple, what: str) -> list[str]:
            values = columns(keys, len(keys) == 1)
            values = values if len(keys) == 1 else list(map(join_texts, values))
            texts, problems = clean_texts(values, options.remove_spaces, what)
            for at in problems.keys() - bad.keys():
                is_empty = isinstance(problems[at], EmptyText)
                bad[at] = BadRow(numbers[at], str(problems[at]), is_empty=is_empty)
            return texts

        texts = cleaned(used.text, "text")
        pairs = cleaned(used.pair, "second text") if used.pair else None
        labels = None
        if used.label:
            labels = self._labels(numbers, columns(used.label, options.label_columns is None), bad)
        if options.is_quoted:
            several = [at for at, row in enumerate(found) if at not in bad and "\n" in "".join(row)]
            self.multiline += len(several)
            self.first_multiline = self.first_multiline or (numbers[several[0]] if several else None)
        return Checked(numbers, texts, pairs, labels, records, bad)

    def _bad_shapes(self, numbers: list[int], records: list) -> dict[int, BadRow]:
        """Return the records that are not rows with the columns in use, by their positions."""
        are_lists = set(map(type, records)) == {list} and self.names not in records
        if are_lists and self.used is not None and set(map(len, records)) == {self.used.width}:
            return {}
        bad = {}
        for at, record in enumerate(records):
            if isinstance(record, BadRow):
                bad[at] = record
            elif problem := self._problem_of_shape(record):
                bad[at] = BadRow(numbers[at], problem)
        return bad

    def _problem_of_shape(self, record: Any) -> str | None:
        used = self.used
        if self.names is not None and record == self.names:
            return "the names of the columns come again; remove the row"
        is_object = used is not None and used.width is None
        if used is None or not isinstance(record, dict if is_object else list):
            rule = "an object like the first one" if is_object else "an array of text and label, or an object"
            return f"{rule} is needed, found {excerpt(record)}; fix the row"
        if is_object:
            missing = [excerpt(name) for name in used.used if name not in record]
            problem = f"is missing, found {excerpt(record)}; add it or remove the row"
            return f"the column {missing[0]} {problem}" if missing else None
        if len(record) == used.width:
            return None
        shown = " | ".join(value if isinstance(value, str) else excerpt(value) for value in record[:20])
        return _(
            "{width} columns are needed as in the first row, found {found}: {row}; remove extra separators "
            "from the text (or, in CSV, enclose it in double quotes) or fill in what is missing"
        ).format(width=used.width, found=len(record), row=excerpt(shown))

    def _labels(self, numbers: list[int], values: list, bad: dict[int, BadRow]) -> list[str | None]:
        """Return the text of each label; a label that is text is looked at once."""
        known: dict[str, str | ValueError] = {}

        def parsed(at: int, value: Any) -> str | ValueError:
            is_text = isinstance(value, str) and self.options.format in ("json", "jsonl")
            try:
                return self.form.text(value if is_text else value_of(value), self.options)
            except InputError as error:
                raise InputError(bad_row_message(self.path, self.unit, numbers[at], error)) from error
            except ValueError as error:
                return error

        labels: list = [None] * len(values)
        for at, value in enumerate(values):
            if type(value) is not str:
                label = None if at in bad else parsed(at, value)
            elif (label := known.get(value)) is None:
                label = known[value] = parsed(at, value)
            labels[at] = label if isinstance(label, str) else None
            if isinstance(label, ValueError):
                bad.setdefault(at, BadRow(numbers[at], str(label)))
        return labels


def join_texts(texts: Sequence[Any]) -> Any:
    """Return the texts of several columns as one, without those that are empty; what is no text stays."""
    filled = [text for text in texts if not (text is None or (isinstance(text, str) and not text.strip()))]
    wrong = [text for text in filled if not isinstance(text, str)]
    return wrong[0] if wrong else BETWEEN_TEXTS.join(text.strip() for text in filled)


def read_rows(
    path: str | Source, options: ReadOptions, need_label: bool = True, keep_records: bool = False
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order, as `RowReader.rows` does."""
    return RowReader(path, options, need_label).rows(keep_records)


def text_rows(texts: Iterable[str | tuple[str, ...]], options: ReadOptions) -> Iterator[Row | BadRow]:
    """Yield texts, or pairs of them, that are in no file as rows without labels, numbered from 1."""
    for line, value in enumerate(texts, 1):
        parts = zip(value if isinstance(value, tuple) else (value,), ("text", "second text"), strict=False)
        try:
            cleaned = [clean_text(one, options.remove_spaces, what) for one, what in parts]
            yield Row(line, *cleaned, *[None] * (3 - len(cleaned)))
        except ValueError as error:
            yield BadRow(line, str(error), is_empty=isinstance(error, EmptyText))
