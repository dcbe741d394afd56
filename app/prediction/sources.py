"""Rows to classify, with all their columns: from files, streams or the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.schema import DataConfig
from ..data.bad_row import BadRow, bad_row_message, changed_error
from ..data.cache import file_state
from ..data.cells import EmptyText, clean_text
from ..data.columns import ColumnError
from ..data.encodings import Stream
from ..data.files import files_of
from ..data.read import DELIMITED, SUFFIXES, ReadOptions, recognised
from ..data.row_reader import RowReader, open_rows
from ..data.rows import Row
from ..errors import InputError, counted, reading
from . import OF_LABELS
from .other_columns import other_columns_error
from .trained_model import TrainedModel

COLUMN_SETTINGS = ("text_column", "text_pair_column", *OF_LABELS)
MAX_SHOWN = 10  # invalid rows in a summary
# The columns of texts that are in no table, and of a pair of texts
TEXT_NAMES = ["line", "text"]
TEXT_PAIR_NAMES = [*TEXT_NAMES, "text_pair"]


@dataclass(frozen=True)
class Scan:
    """What a reading of all rows has shown: how many are valid, how many are not, the first few of these, and
    the names of all columns, of objects all keys."""

    num_good: int
    num_bad: int
    first_bad: list[BadRow]
    names: list[str]

    @property
    def num_rows(self) -> int:
        return self.num_good + self.num_bad


class ReadRows:
    """One reading of the rows of a source: an iterator, with what it has shown so far as `scan()`.

    With `on_bad_row` keep, invalid rows are among the rows; with skip they are not; with error, the first one
    raises InputError.
    """

    def __init__(
        self, source: Source, rows: Iterator[Row | BadRow], on_bad_row: str, has_keys: bool = False
    ) -> None:
        self._source = source
        self._rows = rows
        self._on_bad_row = on_bad_row
        self._has_keys = has_keys
        self._names = dict.fromkeys(source.names)
        self._first_bad: list[BadRow] = []
        self.num_good = 0
        self.num_bad = 0

    def scan(self) -> Scan:
        return Scan(self.num_good, self.num_bad, self._first_bad, list(self._names))

    def __iter__(self) -> Iterator[Row | BadRow]:
        # A change since an earlier reading is found before the first row is classified
        self._source.check_unchanged()
        for row in self._rows:
            if self._has_keys:
                self._names.update(dict.fromkeys(row.record))
            if isinstance(row, Row):
                self.num_good += 1
                yield row
            else:
                self._note_bad(row)
                if self._on_bad_row == "keep":
                    yield row
        self._check_same()

    def _note_bad(self, row: BadRow) -> None:
        self.num_bad += 1
        if len(self._first_bad) < MAX_SHOWN:
            self._first_bad.append(row)
        if self._on_bad_row == "error":
            raise self._source.bad_row_error(row)

    def _check_same(self) -> None:
        """Raise InputError where the file has changed, or an earlier reading gave another number of rows."""
        self._source.check_unchanged()
        scan = self._source.scan
        if scan is not None and scan.num_rows != self.num_good + self.num_bad:
            raise changed_error(self._source.name)


@dataclass(frozen=True)
class Source:
    """Rows to classify: those of a file or stream, which `reader` reads, or the `texts` of the command line;
    each is a text, or a pair of texts.

    `unit` is what the number of a row counts. `state` is the `file_state` of the file when it was opened,
    None for streams and texts. `scan` is what a first reading of all rows has shown, None where there was
    none.
    """

    name: str
    unit: str
    reader: RowReader | None = None
    texts: tuple[str | tuple[str, str], ...] = ()
    remove_spaces: bool = False
    state: list[int] | None = None
    scan: Scan | None = None

    @property
    def is_stream(self) -> bool:
        """Whether the rows can be read only once."""
        return self.reader is not None and isinstance(self.reader.path, Stream)

    @property
    def format(self) -> str:
        return "text" if self.reader is None else self.reader.options.format

    @property
    def has_pairs(self) -> bool:
        if self.reader is None:
            return any(isinstance(text, tuple) for text in self.texts)
        return bool(self.reader.columns.pair)

    @property
    def names(self) -> list[str]:
        """The names, all different, of the columns before the predictions: those of a table, else line and
        text. Objects have the keys of all rows after a scan, before it those of the first rows."""
        if self.scan is not None:
            return self.scan.names
        if self.reader is None:
            return TEXT_PAIR_NAMES if self.has_pairs else TEXT_NAMES
        if self.reader.names is None:
            return TEXT_NAMES
        return self.reader.names

    @property
    def other_names(self) -> list[str]:
        """The names of the columns that are neither text nor label."""
        if self.reader is None or self.reader.names is None:
            return []
        used_names = self.reader.used_names
        return [name for name in self.names if name not in used_names]

    def rows(self, on_bad_row: str, with_records: bool = False) -> ReadRows:
        """Start to read the rows; `with_records`, each has all its columns."""
        if self.reader is None:
            return ReadRows(self, self._rows_of_texts(), on_bad_row)
        has_keys = with_records and self.reader.columns.are_keys
        return ReadRows(self, self.reader.rows(with_records), on_bad_row, has_keys)

    def _rows_of_texts(self) -> Iterator[Row | BadRow]:
        for row in text_rows(self.texts, self.remove_spaces):
            record = {"line": row.line, "text": None}
            if isinstance(row, Row):
                record["text"] = row.text
                if row.pair is not None:
                    record["text_pair"] = row.pair
            yield row._replace(record=record)

    def scanned(self, on_bad_row: str) -> Source:
        """Return the source with the scan of a first reading, which finds an invalid last row before the
        first row is classified. Raises InputError for no valid row, and with `error` for an invalid one."""
        has_keys = self.reader is not None and self.reader.columns.are_keys
        rows = self.rows(on_bad_row, with_records=has_keys)
        for _row in rows:
            pass
        scan = rows.scan()
        if not scan.num_good:
            raise InputError(f"there are no valid rows; {self.summary(scan)}")
        return replace(self, scan=scan)

    def check_unchanged(self) -> None:
        """Raise InputError where the file is not as it was when it was opened: it is read more than once."""
        if self.state is not None and file_state(Path(self.name)) != self.state:
            raise changed_error(self.name)

    def problem_of(self, row: BadRow) -> str:
        """Return what is wrong with a row, with its place."""
        return bad_row_message(self.name, self.unit, row.line, row.problem)

    def bad_row_error(self, row: BadRow) -> InputError:
        """Return the error of an invalid row, with the setting that keeps such rows."""
        return InputError(f"{self.problem_of(row)} (or --on_bad_row keep)")

    def record(self, row: Row | BadRow) -> dict[str, Any]:
        """Return the values of a row by name, None for those that it lacks; an object has its own keys."""
        return dict(row.record or {})

    def summary(self, scan: Scan, bad: str = "skipped") -> str:
        """Return rows, columns and invalid rows for people; `bad` is what became of the latter."""
        first_line = f"{self.name}: {counted(scan.num_good, 'row')}"
        if self.reader is not None:
            first_line += f" ({self.reader.columns.facts.in_english()})"
        if scan.num_bad:
            first_line += f", {scan.num_bad:,} {bad}"
        lines = [first_line]
        for row in scan.first_bad:
            lines.append(f"  {self.unit} {row.line}: {row.problem}")
        return "\n".join(lines)


def source_of_texts(texts: Iterable[str | tuple[str, str]], remove_spaces: bool) -> Source:
    """Return texts of the command line, or pairs of them, as a source."""
    return Source("command line", "text", texts=tuple(texts), remove_spaces=remove_spaces)


def text_rows(texts: Iterable[str | tuple[str, ...]], remove_spaces: bool = False) -> Iterator[Row | BadRow]:
    """Yield texts, or pairs of them, that are in no file as rows without labels, numbered from 1."""
    for line, value in enumerate(texts, 1):
        parts = value if isinstance(value, tuple) else (value,)
        try:
            text = clean_text(parts[0], remove_spaces, "text")
            pair = None
            if len(parts) > 1:
                pair = clean_text(parts[1], remove_spaces, "second text")
            yield Row(line, text, pair, None)
        except ValueError as error:
            yield BadRow(line, str(error), is_empty=isinstance(error, EmptyText))


def options_of_run(
    path: Path | Stream,
    trained: TrainedModel,
    asked: Mapping[str, Any] | None = None,
    need_label: bool = False,
) -> ReadOptions:
    """Return the settings with which a trained model reads a file; `format` is never auto. `asked` are those
    that were asked for now; None and auto were not. Without `need_label`, the settings of labels are left
    out. Raises InputError as `recognised`."""
    asked_settings = {}
    for name, value in (asked or {}).items():
        if value not in (None, "auto"):
            asked_settings[name] = value
    # The format and the limit of the training are those of the train file only
    options = replace(trained.reading, format=DataConfig.format, limit=None)
    if options.sheet is not None and "sheet" not in asked_settings:
        options = replace(options, sheet_if_there=True)
    if options.header is False:
        # Another file may have a header. Columns that are asked for now are those of the file itself.
        is_asked = any(asked_settings.get(name) is not None for name in COLUMN_SETTINGS)
        options = replace(options, header=None, train_has_no_header=not is_asked)
    if not need_label or not asked_settings.keys().isdisjoint(OF_LABELS):
        options = replace(options, **dict.fromkeys(OF_LABELS))
    if not need_label:
        for name in OF_LABELS:
            asked_settings.pop(name, None)
    options = replace(options, **asked_settings)
    return recognised(path, options, need_label, _usual_format(path, trained))


def _usual_format(path: Path | Stream, trained: TrainedModel) -> str | None:
    """Return the format of the train file, if its name ends like that of this file."""
    suffix = path.suffix.lower()
    if not suffix or suffix != trained.train_suffix:
        return None
    if trained.reading.format in DELIMITED:
        return trained.reading.format
    return SUFFIXES.get(suffix)


def open_file(path: str, trained: TrainedModel, asked: Mapping[str, Any], need_label: bool = False) -> Source:
    """Return a file as a source; `-` is standard input, and a pipe is read as a stream.

    It is read as `options_of_run` says: with the settings in `asked`, else as in the training. With
    `need_label`, rows have labels, and one without is invalid. Raises InputError for a file that cannot be
    read or has no such columns, and where columns or labels of plain text or a stream are asked for.
    """
    file = _opened(path)
    state = None
    if isinstance(file, Path) and file.is_file():
        state = file_state(file)
    options = options_of_run(file, trained, asked, need_label)
    if need_label and (isinstance(file, Stream) or options.format == "text"):
        input_found = "plain text; set --format tsv"
        if isinstance(file, Stream):
            input_found = "a stream; save it to a file"
        raise InputError(f"{file}: rows with labels are needed in a table, found {input_found}")
    if options.format == "text":
        if asked.get("text_column") is not None or asked.get("text_pair_column") is not None:
            raise InputError(
                f"{file}: plain text has no columns; remove --text_column and --text_pair_column, or set "
                "--format tsv"
            )
        options = replace(options, text_column=None, text_pair_column=None)
    try:
        reader = open_rows(file, options, need_label)
    except ColumnError as error:
        if not error.problem or _asks_for_columns(asked):
            raise
        raise other_columns_error(error, trained) from error
    return Source(str(file), reader.unit, reader, state=state)


def _asks_for_columns(asked: Mapping[str, Any]) -> bool:
    return any(asked.get(name) is not None for name in COLUMN_SETTINGS)


def _opened(path: str) -> Path | Stream:
    """Return the file of a path, or the stream that it stands for."""
    if path == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; open it, or name a file with --input")
        return Stream("<stdin>", sys.stdin.buffer)
    names = files_of(path, DataConfig.cache_dir)
    if len(names) > 1:
        raise InputError(
            f"{path}: one file is needed, found {len(names):,}; predict writes those of several into a "
            "folder: --engine ray --output labels/"
        )
    file = Path(names[0])
    with reading(path):
        if file.is_fifo():
            return Stream(names[0], file.open("rb"))
    return file
