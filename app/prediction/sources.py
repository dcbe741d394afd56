"""Rows to classify, with all their columns: from files, streams or the command line."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time
from functools import cached_property, partial
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import Any

from ..config.schema import DataConfig
from ..data.bad_row import BadRow, bad_row_message
from ..data.cells import EmptyText, clean_text
from ..data.encodings import Stream
from ..data.files import files_of
from ..data.read import DELIMITED, FORMATS, SUFFIXES, ReadOptions, recognised
from ..data.rows import Row, RowReader
from ..errors import InputError, readable
from ..words import _
from . import OF_LABELS
from .trained_model import TrainedModel

MAX_SHOWN = 10  # invalid rows in a summary


@dataclass
class Source:
    """Rows to classify; `read()` starts at the first one, which a stream can do only once.

    `place` is what a row's number counts, `num_good` and `num_bad` count the valid and the invalid rows read
    so far; `bad` keeps the first few invalid ones, `keys` the keys of objects. `is_table`: the rows have
    columns that are kept. `num_read` is the number of rows, once all have been read.
    """

    name: str
    place: str
    format: str
    read: Callable[[], Iterator[Row | BadRow]]
    has_pairs: bool = False
    is_stream: bool = False
    reader: RowReader | None = None
    keys: dict[str, None] = field(default_factory=dict)
    bad: list[BadRow] = field(default_factory=list)
    num_good: int = 0
    num_bad: int = 0
    is_table: bool = False
    num_read: int | None = None

    def rows(self, on_bad_row: str) -> Iterator[Row | BadRow]:
        """Yield the rows, invalid ones with `keep` only; with `error`, raises InputError at the first."""
        self.bad, self.num_good, self.num_bad = [], 0, 0
        for row in self.read():
            self.is_table = self.is_table or isinstance(row.record, (list, dict))
            if isinstance(row.record, dict):
                self.keys.update(dict.fromkeys(row.record))
            if isinstance(row, Row):
                self.num_good += 1
                yield row
                continue
            self.num_bad += 1
            if len(self.bad) < MAX_SHOWN:
                self.bad.append(row)
            if on_bad_row == "keep":
                yield row
            elif on_bad_row == "error":
                problem = bad_row_message(self.name, self.place, row.line, row.problem)
                raise InputError(_("{problem} (or --on_bad_row keep)").format(problem=problem))
        if self.num_read not in (None, self.num_good + self.num_bad):
            raise InputError(
                f"{self.name}: a data file must not change while it is read, but this one did; start again "
                "once it is written to its end"
            )
        self.num_read = self.num_good + self.num_bad

    def count(self, on_bad_row: str) -> int:
        """Return the number of valid rows; raises InputError for none, and with `error` for invalid ones."""
        for _row in self.rows("skip" if on_bad_row == "keep" else on_bad_row):
            pass
        if not self.num_good:
            raise InputError(f"there are no valid rows; {self.summary()}")
        return self.num_good

    @property
    def has_objects(self) -> bool:
        """Whether the rows have keys, each its own, and no columns; known once rows have been read."""
        return self.is_table and (self.reader.used is None or self.reader.used.width is None)

    @cached_property
    def names(self) -> list[str]:
        """The names, all different, of the columns before the predictions: those of a table, else line and
        text. They are known once rows have been read. Columns without names are called text, text_pair and
        column_N, from 0."""
        if not self.is_table:
            return ["line", "text", "text_pair"] if self.has_pairs else ["line", "text"]
        if self.has_objects:
            return list(self.keys)
        used = self.reader.used
        roles = {used.text: "text", used.pair: "text_pair"}
        unnamed = [roles.get((number,), f"column_{number}") for number in range(used.width)]
        return free_names(map(as_text, self.reader.names or unnamed))

    def other_columns(self) -> list[str]:
        """Return the names of the columns that are neither text nor label; known once rows have been read."""
        if not self.is_table:
            return []
        used = set(self.reader.used.used)
        if self.has_objects:
            return [name for name in self.keys if name not in used]
        return [name for number, name in enumerate(self.names) if number not in used]

    def record(self, row: Row | BadRow) -> dict[str, Any]:
        """Return the values of a row by name, None for those that it lacks; an object has its own keys.
        Fields after the last column are joined to it with commas."""
        if not self.is_table:
            texts = [row.text, row.pair] if isinstance(row, Row) else [None, None]
            return dict(zip(self.names, [row.line, *texts], strict=False))
        if isinstance(row.record, dict) or self.has_objects:
            return dict(row.record) if isinstance(row.record, dict) else {}
        values, width = row.record if isinstance(row.record, list) else [], len(self.names)
        if len(values) > width:
            values = [*values[: width - 1], ",".join(map(as_text, values[width - 1 :]))]
        return dict(zip_longest(self.names, values))

    def summary(self, bad: str = "skipped") -> str:
        """Return rows, columns and invalid rows for people; `bad` is what became of the latter."""
        columns = f" ({self.reader.used.described})" if self.reader and self.reader.used else ""
        lines = [f"{self.name}: {self.num_good:,} rows{columns}"]
        if self.num_bad:
            lines[0] += f", {self.num_bad:,} {bad}"
        lines += [f"  {self.place} {row.line}: {row.problem}" for row in self.bad]
        return "\n".join(lines)


def text_rows(texts: Iterable[str | tuple[str, ...]], remove_spaces: bool = False) -> Iterator[Row | BadRow]:
    """Yield texts, or pairs of them, that are in no file as rows without labels, numbered from 1."""
    for line, value in enumerate(texts, 1):
        parts = zip(value if isinstance(value, tuple) else (value,), ("text", "second text"), strict=False)
        try:
            cleaned = [clean_text(one, remove_spaces, what) for one, what in parts]
            yield Row(line, *cleaned, *[None] * (3 - len(cleaned)))
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
    asked_settings = {name: value for name, value in (asked or {}).items() if value not in (None, "auto")}
    # The format and the limit of the training are those of the train file only
    options = replace(trained.reading, format=DataConfig.format, limit=None)
    if not need_label or not asked_settings.keys().isdisjoint(OF_LABELS):
        options = replace(options, **dict.fromkeys(OF_LABELS))
    if not need_label:
        for name in OF_LABELS:
            asked_settings.pop(name, None)
    options = replace(options, **asked_settings)
    usual = None
    suffix = path.suffix.lower()
    if suffix and suffix == trained.train_suffix:
        usual = SUFFIXES.get(suffix)
        if trained.reading.format in DELIMITED:
            usual = trained.reading.format
    return recognised(path, options, need_label, usual)


def open_file(
    path: str,
    trained: TrainedModel,
    asked: Mapping[str, Any],
    need_label: bool = False,
    keeps_columns: bool = False,
) -> Source:
    """Return a file as a source; `-` is standard input, and a pipe is read as a stream.

    It is read as `options_of_run` says: with the settings in `asked`, else as in the training. With
    `need_label`, rows have labels, and one without is invalid. Raises InputError for a file that cannot be
    opened, and where columns or labels of plain text or a stream are asked for.
    """
    file: Path | Stream = Stream("<stdin>", sys.stdin.buffer) if path == "-" else Path(path)
    if path != "-":
        names = files_of(path, DataConfig.cache_dir)
        if len(names) > 1:
            raise InputError(
                f"{path}: one file is needed, found {len(names):,}; predict writes those of several into a "
                "folder: --engine ray --output labels/"
            )
        file = Path(names[0])
        with readable(path):
            file = Stream(names[0], file.open("rb")) if file.is_fifo() else file
    is_stream, pair = isinstance(file, Stream), ("text_column", "text_pair_column")
    options = options_of_run(file, trained, asked, need_label)
    if need_label and (is_stream or options.format == "text"):
        found = "a stream; save it to a file" if is_stream else "plain text; set --format tsv"
        raise InputError(f"{file}: rows with labels are needed in a table, found {found}")
    if options.format == "text":
        if any(asked.get(name) is not None for name in pair):
            raise InputError(
                f"{file}: plain text has no columns; remove --text_column and --text_pair_column, or set "
                "--format tsv"
            )
        options = replace(options, **dict.fromkeys(pair))
    reader = RowReader(file, options, need_label)
    unit, has_pairs = FORMATS[options.format].row_unit, options.text_pair_column is not None
    read = partial(reader.rows, keeps_columns)
    # It is a table even where its records are not read, but for a report
    is_table = FORMATS[options.format].batches is not None and not need_label
    return Source(str(file), unit, options.format, read, has_pairs, is_stream, reader, is_table=is_table)


def free_names(names: Iterable[str], taken: Iterable[str] = (), prefix: str = "") -> list[str]:
    """Return the names, made different from `taken` and from each other: by `prefix` before a name, and where
    that is not enough a number after it."""
    seen, free = set(taken), []
    for name in names:
        tries = chain((name, f"{prefix}{name}"), (f"{prefix}{name}_{number}" for number in count(2)))
        free.append(next(new for new in tries if new not in seen))
        seen.add(free[-1])
    return free


def as_text(value: Any) -> str:
    """Return a value as text: nothing for None, lists, objects and truth values as in JSON."""
    if isinstance(value, str):
        return value
    # Not a number (NaN) is the one value that differs from itself
    if value is None or value != value:  # noqa: PLR0124
        return ""
    if isinstance(value, (bool, list, dict)):
        return json.dumps(value, ensure_ascii=False, default=as_json)
    return as_json(value) if isinstance(value, bytes) else str(value)


def as_json(value: Any) -> str:
    """Return what JSON has no type for: dates in ISO form, bytes in base64, all else as Python shows it."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
