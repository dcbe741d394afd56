"""Files of labelled text -> validated rows. An invalid row becomes a `BadRow`, and the caller decides whether
that stops the run. No row is dropped without a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, excerpt
from ..words import _
from .columns import Columns, EmptyText, choose_columns, clean_text, is_header, value_of
from .files import Source, Stream, wrong_character
from .read import FORMATS, BadRow, ReadOptions, bad_row_message, column_names, read_records, recognised

MAX_COLUMNS = 16_384  # of a row, as in Excel; a long line of separators must not take minutes
CHUNK = 2048  # rows that are checked together
FIRST_ROWS = 10_000  # rows whose values show which columns are texts and labels
# It stands between the texts of several columns, and a tokenizer gets its own separator there
BETWEEN_TEXTS = "\u241e"


class Row(NamedTuple):
    """One valid row; `line` is its first line in the file (in JSON its element, in Parquet and Excel its
    row), from 1. `record` is the whole of it, a list of fields or an object, where `rows` keeps it."""

    line: int
    text: str
    pair: str | None
    label: str | None
    record: Any = None


@dataclass
class RowReader:
    """Reads the rows of a file. With `find_pairs`, rows may be pairs of texts although no setting says so.
    With `label_names`, rows with other labels are invalid; with `accept_ids`, integers may be ids of labels.

    Known once reading has begun: `options`, as they are recognised; `unit`, what a row's number counts;
    `used`, the columns, None without any, and `columns`, the same in words; `names` of all columns.
    """

    path: str | Source
    options: ReadOptions
    need_label: bool = True
    find_pairs: bool = False
    label_names: list[str] | None = None
    accept_ids: bool = True
    used: Columns | None = None
    columns: str = ""
    names: list | None = None

    def rows(self, keep_records: bool = False) -> Iterator[Row | BadRow]:
        """Yield the rows in order: valid ones as `Row`, others as `BadRow`; if `keep_records`, with records.
        Raises InputError if the file cannot be read, has no rows, or lacks a chosen column."""
        for *columns, bad in self.chunks(keep_records):
            for at, row in enumerate(map(Row, *columns)):
                yield bad.get(at, row)

    def chunks(self, keep_records: bool = False) -> Iterator[tuple]:
        """Yield what `rows` does in columns, those of `Row`, and the invalid rows by their positions."""
        records, count = islice(self._records(keep_records), self.options.limit), 0
        while some := list(islice(records, CHUNK)):
            count += len(some)
            yield self._checked(*zip(*some, strict=True), keep_records)
        if count == 0:
            said = _("{path}: there are no rows in the file")
            if self.names and FORMATS[self.options.format].has_header:
                said = _("{path}: there are no rows in the file, only a header")
            raise InputError(said.format(path=self.path))

    def _records(self, keep_records: bool) -> Iterator[tuple[int, Any]]:
        """Find the columns, by the first records, and return the records after a header."""
        # It imports NumPy, which predict --help does without
        from .labels import label_form

        path = self.path if isinstance(self.path, Stream) else Path(self.path)
        options, names = recognised(path, self.options, self.need_label), None
        format, records = FORMATS[options.format], read_records(path, options)
        self.options, self.unit, self.form = options, format.row_unit, label_form(options.task)
        if options.format == "parquet":
            self.names = names = column_names(path)
            first = [(0, names)] if names else []
        else:
            first = list(islice(records, 1 if isinstance(path, Stream) else FIRST_ROWS))
        if not first:
            return records
        (number, record), below = first[0], [record for _number, record in first[1:]]
        where = f"{path}, {self.unit} {number}" if number else str(path)
        if isinstance(record, list) and len(record) > MAX_COLUMNS:
            found = f"found {len(record):,}; set --data.format if another separator is meant"
            raise InputError(f"{where}: a row may have at most {MAX_COLUMNS:,} columns, {found}")
        try:
            if format.has_header and is_header(where, record, options, self.need_label, below):
                self.names, names = record, [str(name).strip() for name in record]
            if isinstance(record, (list, dict)):
                rows = below if names else [record, *below]
                are_labels = self.form.are_labels if self.need_label else None
                self.used = choose_columns(where, options, record, names, rows, are_labels, self.find_pairs)
        except InputError as error:
            # A wrong encoding is reported first
            if wrong := wrong_character(" ".join(map(str, record)), "first row"):
                raise InputError(f"{where}: {wrong}") from error
            raise
        if isinstance(record, str) and not self.need_label:
            # Plain text, or JSON Lines of plain strings
            self.used = Columns((0,), (), (), 1, "text '0'")
        self.columns = self.used.described if self.used else ""
        if not format.magic and options.encoding != "utf-8":
            self.columns = f"{self.columns}; encoding {options.encoding}".removeprefix("; ")
        if options.format == "parquet":
            return read_records(path, options, None if keep_records else self.used.used)
        return chain(first[1:] if names else first, records)

    def _checked(self, numbers: tuple, records: tuple, keep_records: bool) -> tuple:
        """Return what `chunks` yields: rules are asked of columns, and of single rows that break one."""
        used, none, problems, found = self.used, [None] * len(numbers), {}, records
        if used and used.width == 1 and not used.label:
            # Plain text
            found = [[record] if isinstance(record, str) else record for record in records]
        are_lists = set(map(type, found)) == {list} and self.names not in found
        if not (used and are_lists and set(map(len, found)) == {used.width}):
            problems = {at: self._problem_of_shape(record) for at, record in enumerate(found)}
            problems = {at: problem for at, problem in problems.items() if problem}
            empty = dict.fromkeys(used.used if used else ())
            found = [empty if at in problems else record for at, record in enumerate(found)]

        def texts_of(keys: tuple, what: str) -> list:
            columns = [[record[key] for record in found] for key in keys]
            if not columns:
                return none
            values = columns[0] if len(keys) == 1 else list(map(join_texts, zip(*columns, strict=True)))
            texts = [value.strip() if type(value) is str else "" for value in values]
            # Letters, digits and Chinese characters can be seen; what begins otherwise is looked at alone
            odd = [at for at, text in enumerate(texts) if not text[:1].isalnum()]
            if self.options.remove_spaces or wrong_character("".join(texts), what):
                odd = range(len(texts))
            for at in odd:
                try:
                    texts[at] = clean_text(values[at], self.options.remove_spaces, what)
                except ValueError as error:
                    problems.setdefault(at, error)
            return texts

        texts = pairs = labels = none
        if used:
            texts, pairs = texts_of(used.text, "text"), texts_of(used.pair, "second text")
            if used.label:
                labels, wrong = self._labels(numbers, found)
                problems = wrong | problems
        kept, bad = records if keep_records else none, {}
        for at, problem in sorted(problems.items()):
            record = None if isinstance(records[at], BadRow) else kept[at]
            bad[at] = BadRow(numbers[at], str(problem), record, isinstance(problem, EmptyText))
        return numbers, texts, pairs, labels, kept, bad

    def _problem_of_shape(self, record: Any) -> str | None:
        """Return why a record is no row with the columns in use."""
        used = self.used
        if isinstance(record, BadRow):
            return record.problem
        if self.names is not None and record == self.names:
            return "the names of the columns come again; remove the row"
        if used and used.width is None and isinstance(record, dict):
            missing = [excerpt(name) for name in used.used if name not in record]
            problem = f"is missing, found {excerpt(record)}; add it or remove the row"
            return f"the column {missing[0]} {problem}" if missing else None
        if not used or used.width is None or not isinstance(record, list):
            rule = "an array of text and label, or an object like the first row"
            return f"{rule}, is needed, found {excerpt(record)}; fix the row"
        if len(record) == used.width:
            return None
        shown = " | ".join(value if isinstance(value, str) else excerpt(value) for value in record[:20])
        return _(
            "{width} columns are needed as in the first row, found {found}: {row}; remove extra separators "
            "from the text (or, in CSV, enclose it in double quotes) or fill in what is missing"
        ).format(width=used.width, found=len(record), row=excerpt(shown))

    def _labels(self, numbers: list[int], records: list) -> tuple[list[str | None], dict[int, ValueError]]:
        """Return the text of each label, and what is wrong, by position; text is parsed once."""
        labels, wrong, known, options, names = [], {}, {}, self.options, self.label_names
        columns = [[record[key] for record in records] for key in self.used.label]
        values = columns[0] if options.label_columns is None else zip(*columns, strict=True)
        for at, value in enumerate(values):
            is_text = type(value) is str
            label = known.get(value) if is_text else None
            if label is None:
                is_plain = is_text and options.format in ("json", "jsonl")
                try:
                    label = self.form.text(value if is_plain else value_of(value), options)
                    if names and (unknown := self.form.unknown(label, names, self.accept_ids)):
                        said = _("unknown label {label}; fix the row or set --data.labels")
                        raise ValueError(said.format(label=unknown))
                except InputError as error:
                    raise InputError(bad_row_message(self.path, self.unit, numbers[at], error)) from error
                except ValueError as error:
                    wrong[at], label = error, None
                if is_text:
                    known[value] = label
            labels.append(label)
        return labels, wrong


def join_texts(texts: Sequence[Any]) -> Any:
    """Return the texts of several columns as one, without those that are empty; what is no text stays."""
    filled = [text for text in texts if not (text is None or (isinstance(text, str) and not text.strip()))]
    wrong = [text for text in filled if not isinstance(text, str)]
    return wrong[0] if wrong else BETWEEN_TEXTS.join(text.strip() for text in filled)


def text_rows(texts: Iterable[str | tuple[str, ...]], options: ReadOptions) -> Iterator[Row | BadRow]:
    """Yield texts, or pairs of them, that are in no file as rows without labels, numbered from 1."""
    for line, value in enumerate(texts, 1):
        parts = zip(value if isinstance(value, tuple) else (value,), ("text", "second text"), strict=False)
        try:
            cleaned = [clean_text(one, options.remove_spaces, what) for one, what in parts]
            yield Row(line, *cleaned, *[None] * (3 - len(cleaned)))
        except ValueError as error:
            yield BadRow(line, str(error), is_empty=isinstance(error, EmptyText))
