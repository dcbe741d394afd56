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
from .columns import MAX_COLUMNS, Columns, choose_columns, is_header
from .file_formats import FORMATS, BadRow, ReadOptions
from .files import UTF_8, Source, Stream, check_characters
from .long_texts import BETWEEN_TEXTS
from .read import Chunk, bad_row_message, column_names, read_chunks, recognised

ONE_IN_LIST = "; one label in each list"
# Rows, and characters in them, whose values show which columns are texts and labels: a file may be in the
# order of its labels
FIRST_ROWS, FIRST_CHARACTERS = 10_000, 16_000_000


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
        for chunk in self.chunks(keep_records):
            none = [None] * len(chunk.numbers)
            columns = chunk.numbers, chunk.texts, chunk.pairs or none, chunk.labels or none
            records = chunk.records if keep_records else none
            for at, row in enumerate(map(Row, *columns, records)):
                if bad := chunk.bad.get(at):
                    yield bad if isinstance(row.record, BadRow) else bad._replace(record=row.record)
                else:
                    yield row

    def chunks(self, keep_records: bool = False) -> Iterator[Checked]:
        """Yield the rows of the file, validated; raises InputError as `rows` does."""
        count = 0
        for chunk in self._records(keep_records):
            if self.options.limit is not None:
                chunk = Chunk(*(values[: self.options.limit - count] for values in chunk))
            if chunk.records:
                count += len(chunk.records)
                yield self._checked(*chunk)
            if count == self.options.limit:
                return
        if count == 0:
            said = _("{path}: there are no rows in the file")
            if self.names and FORMATS[self.options.format].has_header:
                said = _("{path}: there are no rows in the file, only a header")
            raise InputError(said.format(path=self.path))

    def _records(self, keep_records: bool) -> Iterator[Chunk]:
        """Find the columns, and return the records after a header."""
        path, options = self.path, recognised(self.path, self.options, self.need_label)
        self.options, self.unit = options, FORMATS[options.format].row_unit
        self.multiline, self.first_multiline = 0, None
        # It imports NumPy, which predict --help does without
        from .labels import label_form

        self.form = label_form(options.task)
        if options.format == "parquet":
            self.names = column_names(path)
            self._choose(str(path), self.names, [])
            return read_chunks(path, options, None if keep_records else self.used.used)
        chunks = read_chunks(path, options)
        first, taken = self._first_records(chunks)
        if not first:
            return iter(())
        where, record = f"{path}, {self.unit} {taken[0].numbers[0]}", first[0]
        if isinstance(record, list) and len(record) > MAX_COLUMNS:
            found = f"found {len(record):,}; set --data.format if another separator is meant"
            raise InputError(f"{where}: a row may have at most {MAX_COLUMNS:,} columns, {found}")
        may_have_names = FORMATS[options.format].has_header
        has_names = may_have_names and is_header(where, record, options, self.need_label, first[1:])
        names = unclear = None
        if has_names:
            self.names, names = record, [str(name).strip() for name in record]
            taken[0] = Chunk(*(values[1:] for values in taken[0]))
        try:
            self._choose(where, names, first[has_names:])
        except InputError as error:
            unclear = error
        if has_names or unclear:
            try:
                # A wrong encoding is reported first
                check_characters(" ".join(_strings(record)), "first row")
            except ValueError as error:
                raise InputError(f"{where}: {error}") from error
        if unclear:
            raise unclear
        return chain(taken, chunks)

    def _first_records(self, chunks: Iterator[Chunk]) -> tuple[list, list[Chunk]]:
        """Return the records that show the columns, and the chunks that were read for them."""
        # Texts without labels may come from a stream, one at a time
        most = FIRST_ROWS if self.need_label else 1
        most = most if self.options.limit is None else min(most, self.options.limit + 1)
        first, taken, characters = [], [], 0
        for chunk in filter(lambda chunk: chunk.records, chunks):
            taken.append(chunk)
            first += chunk.records
            characters += sum(len(value) for record in chunk.records for value in _strings(record))
            if len(first) >= most or characters > FIRST_CHARACTERS:
                break
        return first[:most], taken

    def _choose(self, where: str, names: list | None, rows: list) -> None:
        """Choose the columns by their names, or by the first of `rows`; there are none if that is invalid."""
        record, options = rows[0] if rows and names is None else names, self.options
        if isinstance(record, (list, dict)):
            names = list(record) if isinstance(record, dict) else names
            if isinstance(record, dict):
                rows = [list(map(row.get, names)) for row in rows if isinstance(row, dict)]
            rows = [row for row in rows if isinstance(row, list) and len(row) == len(record)]
            rules = self.need_label, self.find_pairs, self.form.are_labels
            used = self.used = choose_columns(where, options, names, rows, *rules)
            if isinstance(record, dict):
                roles = (tuple(map(names.__getitem__, role)) for role in (used.text, used.pair, used.label))
                self.used = Columns(*roles, None, used.described, used.assumed)
        elif isinstance(record, str) and not self.need_label:
            # Plain text, or JSON Lines of plain strings
            self.used = Columns((0,), (), (), 1, "text '0'")
        self.columns = self.used.described if self.used else ""
        if not FORMATS[options.format].magic and options.encoding.lower() not in UTF_8:
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

        def columns(keys: tuple) -> list[list]:
            return [[record[key] for record in found] for key in keys]

        def cleaned(keys: tuple, what: str) -> list[str]:
            values = columns(keys)
            values = values[0] if len(keys) == 1 else list(map(join_texts, zip(*values, strict=True)))
            texts, problems = clean_texts(values, options.remove_spaces, what)
            for at in problems.keys() - bad.keys():
                is_empty = isinstance(problems[at], EmptyText)
                bad[at] = BadRow(numbers[at], str(problems[at]), is_empty=is_empty)
            return texts

        texts = cleaned(used.text, "text")
        pairs = cleaned(used.pair, "second text") if used.pair else None
        labels = None
        if used.label:
            values = columns(used.label)
            values = values[0] if options.label_columns is None else list(zip(*values, strict=True))
            labels = self._labels(numbers, values, bad)
        if options.is_quoted:
            several = [at for at, row in enumerate(found) if at not in bad and "\n" in "".join(row)]
            self.multiline += len(several)
            self.first_multiline = self.first_multiline or (numbers[several[0]] if several else None)
        return Checked(numbers, texts, pairs, labels, records, bad)

    def _bad_shapes(self, numbers: list[int], records: list) -> dict[int, BadRow]:
        """Return the records that are not rows with the columns in use, by their positions."""
        used = self.used
        if used is not None and used.width is not None and set(map(type, records)) == {list}:
            is_repeated = self.names is not None and self.names in records
            if set(map(len, records)) == {used.width} and not is_repeated:
                return {}
        problems = map(self._problem_of_shape, records)
        found = zip(numbers, records, problems, strict=True)
        return {
            at: record if isinstance(record, BadRow) else BadRow(number, problem)
            for at, (number, record, problem) in enumerate(found)
            if problem
        }

    def _problem_of_shape(self, record: Any) -> str | None:
        used = self.used
        if isinstance(record, BadRow):
            return record.problem
        if self.names is not None and record == self.names:
            return "the names of the columns come again; remove the row"
        if used is None or not isinstance(record, dict if used.width is None else list):
            is_object = used is not None and used.width is None
            rule = "an object like the first one" if is_object else "an array of text and label, or an object"
            return f"{rule} is needed, found {excerpt(record)}; fix the row"
        if used.width is None:
            missing = [excerpt(name) for name in used.used if name not in record]
            found = f"the column {missing[0]} is missing, found {excerpt(record)}" if missing else ""
            return f"{found}; add it or remove the row" if missing else None
        if len(record) == used.width:
            return None
        shown = " | ".join(value if isinstance(value, str) else excerpt(value) for value in record[:20])
        return _(
            "{width} columns are needed as in the first row, found {found}: {row}; remove extra separators "
            "from the text (or, in CSV, enclose it in double quotes) or fill in what is missing"
        ).format(width=used.width, found=len(record), row=excerpt(shown))

    def _labels(self, numbers: list[int], values: list, bad: dict[int, BadRow]) -> list[str | None]:
        """Return the text of each label; a label that is text is looked at once."""

        def parsed(value: Any) -> str | ValueError:
            is_text = isinstance(value, str) and self.options.format in ("json", "jsonl")
            found = value if is_text else value_of(value)
            if isinstance(found, list) and not self.form.has_several and ONE_IN_LIST not in self.columns:
                self.columns += ONE_IN_LIST
            try:
                return self.form.text(found, self.options)
            except InputError as error:
                number = numbers[values.index(value)]
                raise InputError(bad_row_message(self.path, self.unit, number, error)) from error
            except ValueError as error:
                return error

        known = {value: parsed(value) for value in dict.fromkeys(v for v in values if type(v) is str)}
        labels = [
            known[value] if type(value) is str else None if at in bad else parsed(value)
            for at, value in enumerate(values)
        ]
        for at, label in enumerate(labels):
            if isinstance(label, ValueError):
                bad.setdefault(at, BadRow(numbers[at], str(label)))
                labels[at] = None
        return labels


def _strings(record: Any) -> list[str]:
    values = [*record, *record.values()] if isinstance(record, dict) else record
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


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
