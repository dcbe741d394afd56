"""Rows to classify, from files, streams or the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..data.formats import row_unit
from ..data.readers import BadRow, ReadOptions
from ..data.rows import Row, read_rows, text_rows
from ..data.text_files import Stream
from ..errors import InputError

# Invalid rows in a summary
MAX_SHOWN = 10


@dataclass
class Source:
    """Rows to classify; `read(remove_spaces)` starts at the first one, which a stream can do only once.

    `num_good` and `num_bad` count the valid and the invalid rows read so far; `bad` keeps the first few
    invalid ones, `first` the first valid one.
    """

    name: str
    place: str
    read: Callable[[bool], Iterator[Row | BadRow]]
    is_stream: bool = False
    is_terminal: bool = False
    notes: dict = field(default_factory=dict)
    bad: list[BadRow] = field(default_factory=list)
    num_good: int = 0
    num_bad: int = 0
    first: Row | None = None

    def good_rows(self, remove_spaces: bool, skip: bool) -> Iterator[Row]:
        """Yield the valid rows; raises InputError at the first invalid one unless `skip`."""
        self.bad, self.num_good, self.num_bad = [], 0, 0
        for row in self.read(remove_spaces):
            if isinstance(row, Row):
                self.num_good += 1
                self.first = self.first or row
                yield row
                continue
            self.num_bad += 1
            self.bad += [row] if len(self.bad) < MAX_SHOWN else []
            if not skip:
                self._refuse()

    def count(self, skip: bool) -> int:
        """Read all rows and return the number of valid ones; raises InputError for invalid ones unless
        `skip`, and for no valid row."""
        for _ in self.good_rows(remove_spaces=False, skip=True):
            pass
        if self.num_bad and not skip:
            self._refuse()
        if not self.num_good:
            raise InputError(f"there are no valid rows; {self.summary()}")
        return self.num_good

    def _refuse(self) -> None:
        first = self.bad[0]
        more = f"; {self.num_bad:,} rows are invalid" if self.num_bad > 1 else ""
        raise InputError(
            f"{self.name}, {self.place} {first.line}: {first.problem} (or --on_bad_row skip){more}"
        )

    def summary(self) -> str:
        """Return a summary for people: number of rows, columns, and the skipped rows."""
        columns = f" ({self.notes['columns']})" if self.notes.get("columns") else ""
        skipped = f", {self.num_bad:,} skipped" if self.num_bad else ""
        lines = [f"{self.name}: {self.num_good:,} rows{columns}{skipped}"]
        lines += [f"  {self.place} {row.line}: {row.problem}" for row in self.bad]
        lines += [f"  ... and {self.num_bad - len(self.bad):,} more"] if self.num_bad > len(self.bad) else []
        return "\n".join(lines)


def open_texts(texts: list[str]) -> Source:
    """Return the texts of the command line as a source."""
    return Source("command line", "text", lambda spaces: text_rows(texts, ReadOptions(remove_spaces=spaces)))


def open_file(path: str, options: ReadOptions, need_label: bool = False) -> Source:
    """Return a file as a source; `-` is standard input, and a pipe is read as a stream. `options.format` is
    not auto.

    With `need_label`, rows have labels, and one without is invalid.
    """
    file: Path | Stream = Path(path)
    if path == "-":
        if sys.stdin is None:
            raise InputError("<stdin>: standard input is closed; name a file with --input")
        file = Stream("<stdin>", sys.stdin.buffer)
    elif is_pipe(file):
        try:
            file = Stream(path, file.open("rb"))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    is_stream = isinstance(file, Stream)
    notes: dict = {}

    def read(remove_spaces: bool) -> Iterator[Row | BadRow]:
        return read_rows(
            file, replace(options, remove_spaces=remove_spaces), need_label=need_label, notes=notes
        )

    return Source(
        str(file), row_unit(options.format), read, is_stream, is_stream and file.file.isatty(), notes
    )


def is_pipe(path: Path) -> bool:
    """Return whether there is a named pipe at `path`; a name that cannot be looked up is none, and fails when
    it is opened."""
    try:
        return path.is_fifo()
    except OSError:
        return False
