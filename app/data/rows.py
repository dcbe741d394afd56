"""Files of labelled text -> validated rows. An invalid row becomes a `BadRow`, and the caller decides whether
that stops the run. No row is dropped without a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, excerpt
from ..words import _
from .cells import EmptyText, clean_text, clean_texts
from .columns import MAX_COLUMNS, Chooser, Columns, is_header, names_columns
from .file_formats import FORMATS
from .files import UTF_8, Source, Span, Stream, check_characters, file_encoding
from .long_texts import BETWEEN_TEXTS
from .read import (
    BadRow,
    Chunk,
    ReadOptions,
    bad_row_message,
    check_readable,
    file_format,
    is_quoted,
    parquet_schema,
    read_chunks,
)

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
    """Reads the rows of a file, blank lines not counted.

    The format `text`, one text per line, has no labels (`need_label` False). With `find_pairs`, rows may be
    pairs of texts although no setting says so. With `options.limit`, only the first rows are read, with
    `span`, of `cut_file`, those in it. Known once reading has begun: `unit`, what a row's number counts;
    `used`, the columns, None without any, and `columns`, the same in words; `names` of all columns;
    `is_first_row`, whether a header is possible and the first line was not taken for one; `multiline`, the
    number of records over several lines so far, and `first_multiline`, the line of the first one.
    """

    unit: str
    used: Columns | None = None
    names: list | None = None
    columns = ""
    is_first_row = False
    multiline = 0
    first_multiline: int | None = None

    def __init__(
        self,
        path: str | Source,
        options: ReadOptions,
        need_label: bool = True,
        find_pairs: bool = False,
        span: Span | None = None,
    ) -> None:
        self.path: Source = path if isinstance(path, Stream) else Path(path)
        self.options, self.need_label = options, need_label
        self.find_pairs, self.span = find_pairs, span

    def rows(self, keep_records: bool = False) -> Iterator[Row | BadRow]:
        """Yield the rows in order: valid ones as `Row`, others as `BadRow`; if `keep_records`, with records.
        Raises InputError if the file cannot be read, has no rows, or lacks a chosen column."""
        for chunk in self.chunks(keep_records):
            none = [None] * len(chunk.numbers)
            columns = chunk.numbers, chunk.texts, chunk.pairs or none, chunk.labels or none
            for at, row in enumerate(zip(*columns, chunk.records, strict=True)):
                bad = chunk.bad.get(at)
                if bad is None:
                    yield Row(*row[:4], row[4] if keep_records else None)
                else:
                    has_record = keep_records and not isinstance(row[4], BadRow)
                    yield bad._replace(record=row[4]) if has_record else bad

    def chunks(self, keep_records: bool = False) -> Iterator[Checked]:
        """Yield the rows of the file, validated; raises InputError as `rows` does."""
        count = 0
        for chunk in self.records(keep_records):
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

    def records(self, keep_records: bool = True) -> Iterator[Chunk]:
        """Find the columns, and return the records after a header; raises InputError as `rows` does."""
        options = replace(self.options, encoding=file_encoding(self.path, self.options.encoding))
        options = replace(options, format=file_format(self.path, options.format, options.encoding))
        check_readable(self.path, options)
        self.options, path = options, self.path
        self.unit, self.multiline, self.first_multiline = FORMATS[options.format].row_unit, 0, None
        # It imports NumPy, which predict --help does without
        from .label_sets import label_form

        self.form = label_form(options.task)
        if options.format == "parquet":
            self.names = parquet_schema(path).names
            self._choose(str(path), self.names, [], len(self.names))
            return read_chunks(path, options, None if keep_records else self.used.used, self.span)
        chunks = read_chunks(path, options)
        # Texts without labels may come from a stream, one at a time
        first, chunks = _first_records(chunks, FIRST_ROWS if self.need_label else 1, options.limit)
        if not first.records:
            return chunks
        where, record, below = f"{path}, {self.unit} {first.numbers[0]}", first.records[0], first.records[1:]
        if isinstance(record, list) and len(record) > MAX_COLUMNS:
            raise InputError(
                f"{where}: a row may have at most {MAX_COLUMNS:,} columns, found {len(record):,}; set "
                "--data.format if another separator is meant"
            )
        has_names = FORMATS[options.format].has_header and self._is_header(where, record, below)
        try:
            self._choose_by_first(where, record, below, has_names)
        except ValueError:
            if isinstance(record, (list, dict)):
                # A wrong encoding is reported first
                what = "header" if has_names else "first row"
                try:
                    check_characters(" ".join(value for value in record if isinstance(value, str)), what)
                except ValueError as cause:
                    raise InputError(f"{where}: {cause}") from cause
            raise
        self.is_first_row = FORMATS[options.format].has_header and options.header is None and not has_names
        if self.span is not None:
            return read_chunks(path, options, None, self.span)
        return _without_first(chunks) if has_names else chunks

    def _is_header(self, where: str, record: Any, below: list) -> bool:
        if isinstance(record, BadRow):
            # Or the next line would be read as the header
            if self.options.header or names_columns(self.options):
                raise InputError(f"{where}: the header cannot be read: {record.problem}")
            return False
        below = [row for row in below if isinstance(row, list)]
        return is_header(where, record, self.options, self.need_label, below)

    def _choose_by_first(self, where: str, record: Any, below: list, has_names: bool) -> None:
        """Choose the columns by the first record; there are none if it is invalid."""
        if has_names:
            self.names = record
            names = [str(name).strip() for name in record]
            check_characters(" ".join(names), "header")
            rows = [row for row in below if isinstance(row, list) and len(row) == len(names)]
            self._choose(where, names, rows, len(names))
        elif isinstance(record, dict):
            names = list(record)
            rows = [[row.get(name) for name in names] for row in (record, *below) if isinstance(row, dict)]
            self._choose(where, names, rows, len(names))
            by_name = {None: None, **dict(enumerate(names))}
            used = self.used
            roles = (
                tuple(by_name[number] for number in role) if isinstance(role, tuple) else by_name[role]
                for role in (used.text, used.pair, used.label)
            )
            self.used = Columns(*roles, None, used.described, used.assumed)
        elif isinstance(record, list):
            rows = [row for row in (record, *below) if isinstance(row, list) and len(row) == len(record)]
            self._choose(where, None, rows, len(record))
        elif isinstance(record, str) and not self.need_label:
            # Plain text, or JSON Lines of plain strings
            self.used = Columns(0, None, None, 1, "text '0'")
        self._describe()

    def _choose(self, where: str, names: list | None, rows: list[list], width: int) -> None:
        chooser = Chooser(where, self.options, names, width, self.need_label, rows, self.find_pairs)
        self.used = chooser.choose(self.form.are_labels)
        self._describe()

    def _describe(self) -> None:
        self.columns = self.used.described if self.used else ""
        encoding = self.options.encoding
        if not FORMATS[self.options.format].magic and encoding.lower() not in UTF_8:
            self.columns = f"{self.columns}; encoding {encoding}".removeprefix("; ")

    def _checked(self, numbers: list[int], records: list) -> Checked:
        """Return validated rows: the rules are asked of whole columns, and of single rows that break one."""
        used, options = self.used, self.options
        found = records
        if used is not None and used.label is None and used.width == 1:
            # Plain text
            found = [[record] if isinstance(record, str) else record for record in records]
        bad = self._bad_shapes(numbers, found)

        def column(key: int | str) -> list:
            if bad:
                return [None if at in bad else record[key] for at, record in enumerate(found)]
            return [record[key] for record in found]

        def cleaned(key: int | str | tuple, what: str) -> list:
            if isinstance(key, tuple):
                values = [join_texts(parts) for parts in zip(*map(column, key), strict=True)]
            else:
                values = column(key)
            texts, problems = clean_texts(values, options.remove_spaces, what)
            for at in problems.keys() - bad.keys():
                is_empty = isinstance(problems[at], EmptyText)
                bad[at] = BadRow(numbers[at], str(problems[at]), is_empty=is_empty)
            return texts

        if used is None:
            return Checked(numbers, [None] * len(numbers), None, None, records, bad)
        texts = cleaned(used.text, "text")
        pairs = None if used.pair is None else cleaned(used.pair, "second text")
        labels = None
        if isinstance(used.label, tuple):
            labels = self._labels(numbers, list(zip(*map(column, used.label), strict=True)), bad)
        elif used.label is not None:
            labels = self._labels(numbers, column(used.label), bad)
        if is_quoted(options) and FORMATS[options.format].delimiter:
            self._count_multiline(numbers, records, bad)
        return Checked(numbers, texts, pairs, labels, records, bad)

    def _count_multiline(self, numbers: list[int], records: list, bad: dict[int, BadRow]) -> None:
        for at, record in enumerate(records):
            if at not in bad and any("\n" in field for field in record):
                self.multiline += 1
                self.first_multiline = self.first_multiline or numbers[at]

    def _bad_shapes(self, numbers: list[int], records: list) -> dict[int, BadRow]:
        """Return the records that are not rows with the columns in use."""
        used, bad = self.used, {}
        width = used.width if used else None
        are_lists = width is not None and set(map(type, records)) == {list}
        if (
            are_lists
            and set(map(len, records)) == {width}
            and (self.names is None or self.names not in records)
        ):
            return bad
        for at, (number, record) in enumerate(zip(numbers, records, strict=True)):
            problem = self._problem_of_shape(record)
            if isinstance(record, BadRow):
                bad[at] = record
            elif problem:
                bad[at] = BadRow(number, problem)
        return bad

    def _problem_of_shape(self, record: Any) -> str | None:
        used = self.used
        if self.names is not None and record == self.names:
            return "the names of the columns come again; remove the row"
        if used is None or not isinstance(record, dict if used.width is None else list):
            wants_object = used is not None and used.width is None
            rule = (
                "an object like the first one" if wants_object else "an array of text and label, or an object"
            )
            return f"{rule} is needed, found {excerpt(record)}"
        if used.width is not None and len(record) != used.width:
            shown = " | ".join(value if isinstance(value, str) else excerpt(value) for value in record[:20])
            said = _(
                "{width} columns are needed as in the first row, found {found}: {row}; remove extra "
                "separators from the text (or, in CSV, enclose it in double quotes) or fill in what is "
                "missing"
            )
            return said.format(width=used.width, found=len(record), row=excerpt(shown))
        missing = [name for name in used.used if name not in record] if used.width is None else []
        if missing:
            found = excerpt(record)
            return f"the column {excerpt(missing[0])} is missing, found {found}; add it or remove the row"
        return None

    def _labels(self, numbers: list[int], values: list, bad: dict[int, BadRow]) -> list[str | None]:
        """Return the text of each label; a label that is text is looked at once."""

        def parsed(value: Any) -> str | ValueError:
            try:
                return self.form.text(value, self.options)
            except InputError as error:
                at = next(at for at, other in enumerate(values) if other is value and at not in bad)
                raise InputError(bad_row_message(self.path, self.unit, numbers[at], error)) from error
            except ValueError as error:
                return error

        good = [value for at, value in enumerate(values) if at not in bad] if bad else values
        known = {value: parsed(value) for value in dict.fromkeys(v for v in good if type(v) is str)}
        if not bad and len(set(map(type, values)) | {str}) == 1 and not any(map(_is_error, known.values())):
            return [known[value] for value in values]
        labels: list[str | None] = []
        for at, value in enumerate(values):
            label = None
            if at not in bad:
                label = known[value] if type(value) is str else parsed(value)
                if isinstance(label, ValueError):
                    bad[at] = BadRow(numbers[at], str(label))
                    label = None
            labels.append(label)
        return labels


def _is_error(value: Any) -> bool:
    return isinstance(value, ValueError)


def join_texts(texts: Sequence[Any]) -> Any:
    """Return the texts of several columns as one, without those that are empty; what is no text stays."""
    filled = [text for text in texts if not (text is None or (isinstance(text, str) and not text.strip()))]
    wrong = [text for text in filled if not isinstance(text, str)]
    return wrong[0] if wrong else BETWEEN_TEXTS.join(text.strip() for text in filled)


def read_rows(
    path: str | Source,
    options: ReadOptions,
    need_label: bool = True,
    keep_records: bool = False,
    span: Span | None = None,
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order, as `RowReader.rows` does."""
    return RowReader(path, options, need_label, span=span).rows(keep_records)


def text_rows(texts: Iterable[str | tuple[str, ...]], options: ReadOptions) -> Iterator[Row | BadRow]:
    """Yield texts, or pairs of them, that are in no file as rows without labels, numbered from 1."""
    for line, value in enumerate(texts, 1):
        parts = value if isinstance(value, tuple) else (value,)
        try:
            cleaned = [
                clean_text(part, options.remove_spaces, what)
                for part, what in zip(parts, ("text", "second text"), strict=False)
            ]
            yield Row(line, *cleaned, *[None] * (3 - len(cleaned)))
        except ValueError as error:
            yield BadRow(line, str(error), is_empty=isinstance(error, EmptyText))


def _first_records(chunks: Iterator[Chunk], most: int, limit: int | None) -> tuple[Chunk, Iterator[Chunk]]:
    """Return the first records, and an iterator that begins with them again."""
    first, characters = Chunk([], []), 0
    taken = []
    most = most if limit is None else min(most, limit + 1)
    for chunk in chunks:
        taken.append(chunk)
        first.numbers.extend(chunk.numbers)
        for record in chunk.records:
            values = (
                record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
            )
            characters += sum(len(value) for value in values if isinstance(value, str))
        first.records.extend(chunk.records)
        if len(first.records) >= most or characters > FIRST_CHARACTERS:
            break
    return Chunk(*(values[:most] for values in first)), chain(taken, chunks)


def _without_first(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    is_left = True
    for chunk in chunks:
        yield Chunk(*(values[1:] for values in chunk)) if is_left and chunk.records else chunk
        is_left = is_left and not chunk.records
