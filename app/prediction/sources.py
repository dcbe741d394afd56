"""Rows to classify, from files, streams or the command line."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..config.data_settings import DataConfig
from ..data.file_formats import FORMATS
from ..data.files import Stream, files_of
from ..data.read import BadRow, ReadOptions, bad_row_message, options_of_run
from ..data.rows import Row, RowReader, text_rows
from ..errors import InputError, cannot_read
from ..words import _
from .input_columns import KeptColumns, NumberedTexts

# Invalid rows in a summary
MAX_SHOWN = 10
# What is done with an invalid row: it has no label but a reason; it is left out; it ends the reading
ON_BAD_ROW = ("keep", "skip", "error")
# Rows of a stream in which the keys of its objects are looked up before the first row is written
FIRST_ROWS = 2048


@dataclass
class Source:
    """Rows to classify; `read()` starts at the first one, which a stream can do only once. `format` is that
    of the file, and `has_pairs` whether the rows are pairs of texts.

    `num_good` and `num_bad` count the valid and the invalid rows read so far; `bad` keeps the first few
    invalid ones, `first` the first valid one, `keys` the keys of objects.
    """

    name: str
    place: str
    read: Callable[[], Iterator[Row | BadRow]]
    format: str
    has_pairs: bool = False
    is_stream: bool = False
    is_terminal: bool = False
    reader: RowReader | None = None
    keys: dict[str, None] = field(default_factory=dict)
    bad: list[BadRow] = field(default_factory=list)
    num_good: int = 0
    num_bad: int = 0
    first: Row | None = None

    def rows(self, on_bad_row: str) -> Iterator[Row | BadRow]:
        """Yield the rows, invalid ones with `keep` only; with `error`, raises InputError at the first."""
        self.bad, self.num_good, self.num_bad = [], 0, 0
        for row in self.read():
            if isinstance(row.record, dict):
                self.keys.update(dict.fromkeys(row.record))
            if isinstance(row, Row):
                self.num_good += 1
                self.first = self.first or row
                yield row
                continue
            self.num_bad += 1
            self.bad += [row] if len(self.bad) < MAX_SHOWN else []
            if on_bad_row == "keep":
                yield row
            elif on_bad_row == "error":
                self._refuse()

    def started(self, on_bad_row: str) -> Iterator[Row | BadRow]:
        """Return the rows, of which enough are read that `columns` are known."""
        rows = self.rows(on_bad_row)
        if not self.is_stream:
            return rows
        first: list[Row | BadRow] = []
        while some := list(islice(rows, 1 if self.is_terminal else FIRST_ROWS)):
            first += some
            if self.first is not None:
                break
        return chain(first, rows)

    def has_reasons(self, on_bad_row: str) -> bool:
        """Return whether rows have a reason why they have no label: where one is invalid, or may be."""
        return on_bad_row == "keep" and (self.is_stream or self.num_bad > 0)

    @property
    def columns(self) -> KeptColumns | NumberedTexts:
        """What stands before the predictions; known once rows have been read."""
        is_table = self.first is not None and isinstance(self.first.record, (list, dict))
        return self.table_columns if is_table else NumberedTexts(self.has_pairs)

    @property
    def table_columns(self) -> KeptColumns:
        """All columns of a table; known once rows have been read."""
        return KeptColumns.of(self.reader.used, self.reader.names, self.keys)

    def count(self, on_bad_row: str) -> int:
        """Return the number of valid rows; raises InputError for none, and with `error` for invalid ones."""
        for _row in self.rows("skip"):
            pass
        if self.num_bad and on_bad_row == "error":
            self._refuse()
        if not self.num_good:
            raise InputError(f"there are no valid rows; {self.summary()}")
        return self.num_good

    def _refuse(self) -> None:
        first = self.bad[0]
        problem = bad_row_message(self.name, self.place, first.line, first.problem)
        said = _("{problem} (or --on_bad_row keep)").format(problem=problem)
        if self.num_bad > 1:
            said += _("; {rows:,} rows are invalid").format(rows=self.num_bad)
        raise InputError(said)

    def summary(self, bad: str = "skipped") -> str:
        """Return rows, columns and invalid rows for people; `bad` is what became of the latter."""
        columns = f" ({self.reader.columns})" if self.reader and self.reader.columns else ""
        skipped = f", {self.num_bad:,} {bad}" if self.num_bad else ""
        lines = [f"{self.name}: {self.num_good:,} rows{columns}{skipped}"]
        lines += [f"  {self.place} {row.line}: {row.problem}" for row in self.bad]
        lines += [f"  ... and {self.num_bad - len(self.bad):,} more"] if self.num_bad > len(self.bad) else []
        return "\n".join(lines)


def open_texts(texts: list[str], recorded: Mapping[str, Any]) -> Source:
    """Return the texts of the command line as a source; `recorded` as in `open_file`."""
    options = ReadOptions("text", remove_spaces=bool(recorded.get("remove_spaces")))
    return Source("command line", "text", lambda: text_rows(texts, options), options.format)


def open_file(
    path: str,
    recorded: Mapping[str, Any],
    asked: Mapping[str, Any],
    need_label: bool = False,
    keeps_columns: bool = False,
) -> Source:
    """Return a file as a source; `-` is standard input, and a pipe is read as a stream.

    It is read as `options_of_run` says: with the settings in `asked`, else with those that the model's run
    has `recorded`. With `need_label`, rows have labels, and one without is invalid. Raises InputError for a
    file that cannot be opened, and where columns or labels of plain text are asked for.
    """
    file = _open(path)
    options = file_options(file, recorded, asked, need_label)
    is_stream = isinstance(file, Stream)
    reader = RowReader(file, options, need_label)

    def state() -> tuple[int, int] | None:
        status = None if is_stream or not file.exists() else file.stat()
        return status and (status.st_size, status.st_mtime_ns)

    def read() -> Iterator[Row | BadRow]:
        yield from reader.rows(keeps_columns)
        if state() != before:
            raise InputError(
                f"{file}: a data file must not change while it is read, but this one did; start again once "
                "it is written to its end"
            )

    before = state()
    return Source(
        str(file),
        FORMATS[options.format].row_unit,
        read,
        options.format,
        options.text_pair_column is not None,
        is_stream,
        is_stream and file.file.isatty(),
        reader,
    )


def file_options(
    file: Path | Stream, recorded: Mapping[str, Any], asked: Mapping[str, Any], need_label: bool = False
) -> ReadOptions:
    """Return with which settings a file is read; raises InputError where it cannot be, and where columns or
    labels of plain text are asked for."""
    options = options_of_run(file, recorded, asked, need_label)
    if options.format != "text":
        return options
    _check_plain_text(asked, need_label)
    return replace(options, text_column=None, text_pair_column=None)


def _open(path: str) -> Path | Stream:
    if path == "-":
        if sys.stdin is None:
            raise InputError("<stdin>: standard input is closed; name a file with --input")
        return Stream("<stdin>", sys.stdin.buffer)
    given, (path, *others) = path, files_of(path, DataConfig.cache_dir)
    if others:
        raise InputError(
            f"{given}: one file is needed, found {len(others) + 1:,}; predict writes those of several into a "
            "folder: --engine ray --output labels/"
        )
    if not is_pipe(Path(path)):
        return Path(path)
    try:
        return Stream(path, Path(path).open("rb"))
    except OSError as error:
        raise cannot_read(path, error) from error


def _check_plain_text(asked: Mapping[str, Any], need_label: bool) -> None:
    if need_label:
        raise InputError("command line: --report needs rows with labels, found plain text; set --format tsv")
    if (asked.get("text_column"), asked.get("text_pair_column")) != (None, None):
        raise InputError(
            "command line: plain text has no columns; remove --text_column and --text_pair_column, or set "
            "--format tsv"
        )


def is_pipe(path: Path) -> bool:
    """Return whether there is a named pipe at `path`; other problems show where it is opened."""
    try:
        return path.is_fifo()
    except OSError:
        return False
