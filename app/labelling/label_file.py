"""The file of answers: a row for each labelled text, with the columns of the pool, appended before the next
text is shown.

Beside `labels.csv` are `labels.train.csv` and `labels.test.csv`, its rows by their split, which are data
files for a training, and `labels.skipped.csv`, the texts that people have skipped. A blind second answer is
in the row of its text, so that no text is there twice.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.bad_row import BadRow
from ..data.cache import file_state
from ..data.cells import value_of
from ..data.read import ReadOptions
from ..data.row_cells import free_names
from ..data.row_reader import open_rows
from ..errors import InputError, TrainingError, excerpt, listed, reading, say
from ..runtime.disk import CSV_ENCODING, whole_file
from .pool import Pool

ADDED = ("label", "split", "second_label", "person", "time")
TAKEN = "new_"  # stands before the name of an added column where the pool has a column of that name
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Answer:
    """The labels that a person gave to a text, and where the text was shown again, the `second_labels`.
    `time` is local, to the second; `split` is train or test."""

    labels: tuple[str, ...]
    split: str
    person: str
    time: str
    second_labels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class LabelledText:
    """A row of the file: the text or pair, the cells of its row in the pool, and the answer."""

    texts: tuple[str, ...]
    cells: list[str]
    answer: Answer


class LabelFile:
    """Reads and writes the file of answers at `path`, whose name ends in .csv, for a pool. With `has_several`
    labels a text, they are a JSON list in their cell.

    What is written is on the disk when a method returns. Raises InputError for a file that is not of this
    pool, or that another program changes; TrainingError where it cannot be written.
    """

    def __init__(self, path: Path, pool: Pool, has_several: bool) -> None:
        check_name(path)
        self.path = path
        self.pool = pool
        self.has_several = has_several
        self.columns = free_names(ADDED, pool.columns, TAKEN)
        self.label_column = self.columns[0]
        self._state: list[int] | None = None

    @property
    def skipped_path(self) -> Path:
        return self._beside("skipped")

    def part(self, split: str) -> Path:
        """Return the file with the rows of a split."""
        return self._beside(split)

    def _beside(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.stem}.{name}{self.path.suffix}")

    def open(self) -> list[LabelledText]:
        """Return what the file has, in the order of the answers, and make it ready for more. A last line that
        was not written to its end is removed, and the files of the splits are written again."""
        if not self.path.exists():
            for path in (self.part("train"), self.part("test"), self.skipped_path):
                if path.exists():
                    raise InputError(
                        f"{path}: this file belongs to {self.path}, which is not there; move it away"
                    )
            self.rewrite([])
            return []
        # Files of something else are left as they are, to the last byte
        self._check_header(self.path)
        for split in SPLITS:
            if self.part(split).exists():
                self._check_header(self.part(split))
        self._remove_torn_line(self.path)
        rows = self._read(self.path)
        labelled_texts = []
        for texts, record in rows:
            labelled_texts.append(self._labelled_text(texts, record))
        self._write_parts(labelled_texts)
        self._state = file_state(self.path)
        return labelled_texts

    def skipped_texts(self) -> list[tuple[str, ...]]:
        """Return the texts that people have skipped."""
        if not self.skipped_path.exists():
            return []
        self._check_header(self.skipped_path)
        self._remove_torn_line(self.skipped_path)
        return [texts for texts, _record in self._read(self.skipped_path)]

    def append(self, row: LabelledText) -> None:
        """Write one more answer."""
        self._check_unchanged()
        line = self._line(row)
        self._append(self.path, line)
        self._state = file_state(self.path)
        self._append(self.part(row.answer.split), line)

    def append_skipped(self, texts_and_cells: LabelledText) -> None:
        """Write one more skipped text."""
        if not self.skipped_path.exists():
            self._write(self.skipped_path, [])
        self._append(self.skipped_path, self._line(texts_and_cells))

    def rewrite(self, rows: Iterable[LabelledText]) -> None:
        """Write all answers again, whole or not at all: one of them was replaced."""
        rows = list(rows)
        self._check_unchanged()
        self._write(self.path, rows)
        self._state = file_state(self.path)
        self._write_parts(rows)

    def _write_parts(self, rows: list[LabelledText]) -> None:
        for split in SPLITS:
            self._write(self.part(split), [row for row in rows if row.answer.split == split])

    def _write(self, path: Path, rows: list[LabelledText]) -> None:
        lines = [_csv_line([*self.pool.columns, *self.columns])]
        lines += [self._line(row) for row in rows]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write("".join(lines).encode(CSV_ENCODING))
        except OSError as error:
            raise _cannot_write(path, error) from error

    def _append(self, path: Path, line: str) -> None:
        try:
            with path.open("ab") as file:
                size = file.tell()
                try:
                    file.write(line.encode())
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    os.truncate(path, size)
                    raise
        except OSError as error:
            raise _cannot_write(path, error) from error

    def _line(self, row: LabelledText) -> str:
        answer = row.answer
        second = ""
        if answer.second_labels is not None:
            second = self._label_cell(answer.second_labels)
        added = [self._label_cell(answer.labels), answer.split, second, answer.person, answer.time]
        return _csv_line([*row.cells, *added])

    def _label_cell(self, labels: tuple[str, ...]) -> str:
        if self.has_several:
            return json.dumps(labels, ensure_ascii=False)
        return "".join(labels)

    def _labels(self, cell: str, place: str) -> tuple[str, ...]:
        if not self.has_several:
            return (cell,) if cell else ()
        labels = value_of(cell)
        if not isinstance(labels, list):
            rule = 'with several labels a text, they must be a list such as ["a", "b"]'
            raise InputError(f"{place}: {rule}, found {excerpt(cell)}; correct it, or leave out --several")
        return tuple(map(str, labels))

    def _read(self, path: Path) -> list[tuple[tuple[str, ...], dict]]:
        """Return the texts and the cells of the rows of a file."""
        options = ReadOptions(
            format="csv",
            quoting="double",
            header=True,
            text_column=self._text_column(),
            text_pair_column=self.pool.pair_column,
        )
        if _has_header_only(path):
            return []
        rows = []
        for row in open_rows(path, options, need_label=False).rows(with_records=True):
            if isinstance(row, BadRow):
                raise InputError(f"{path}, line {row.line}: {row.problem}")
            rows.append((row.texts, {**row.record, "line": row.line}))
        return rows

    def _check_header(self, path: Path) -> None:
        header = _header(path)
        if header != [*self.pool.columns, *self.columns]:
            raise InputError(
                f"{path}: the columns of {self.pool.name} and {listed(self.columns)} are needed, found "
                f"{listed(header)}; name another --output, or the pool that this file belongs to"
            )

    def _text_column(self) -> str | list[str]:
        if len(self.pool.text_columns) == 1:
            return self.pool.text_columns[0]
        return self.pool.text_columns

    def _labelled_text(self, texts: tuple[str, ...], record: dict) -> LabelledText:
        place = f"{self.path}, line {record['line']}"
        label, split, second, person, time = [record[name] or "" for name in self.columns]
        if split not in SPLITS:
            raise InputError(
                f"{place}: {self.columns[1]} must be train or test, found {excerpt(split)}; correct it"
            )
        labels = self._labels(label, place)
        if not labels and not self.has_several:
            raise InputError(f"{place}: a label is needed, found none; write one, or remove the line")
        answer = Answer(labels, split, person, time)
        if second:
            answer = replace(answer, second_labels=self._labels(second, place))
        cells = [record[name] or "" for name in self.pool.columns]
        return LabelledText(texts, cells, answer)

    def _remove_torn_line(self, path: Path) -> None:
        """Remove the end of the last line where a process was killed while it wrote it: no answer is lost,
        because none was confirmed."""
        with reading(path):
            content = path.read_bytes()
        num_columns = len(self.pool.columns) + len(self.columns)
        size = complete_size(content, num_columns)
        if size < len(content):
            say(f"{path}: the last line was not written to its end, and is removed")
            os.truncate(path, size)
        elif not content.endswith(b"\n"):
            self._append(path, "\r\n")

    def _check_unchanged(self) -> None:
        if self._state is not None and file_state(self.path) != self._state:
            raise InputError(
                f"{self.path}: this file must not be changed while it is written to, but another program did "
                "so; start again to continue with the file as it is now"
            )


def check_name(path: Path) -> None:
    """Raise InputError where a file of answers cannot have this name."""
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: the name must end in .csv; choose another --output")


def complete_size(content: bytes, num_columns: int) -> int:
    """Return how many bytes of a CSV file are whole rows. Its last column is a time, so that the end of a row
    can be told from a part of it."""
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    rows = csv.reader(lines)
    size = 0
    num_lines = 0
    for row in rows:
        text = "".join(lines[num_lines : rows.line_num])
        num_lines = rows.line_num
        is_last = num_lines == len(lines)
        is_whole = len(row) == num_columns and (size == 0 or TIME.fullmatch(row[-1]))
        if is_last and row and not is_whole:
            return size
        size += len(text.encode("utf-8", "surrogateescape"))
    return size


def _header(path: Path) -> list[str]:
    with reading(path), path.open(encoding=CSV_ENCODING, errors="replace", newline="") as file:
        return next(csv.reader(file), [])


def _has_header_only(path: Path) -> bool:
    with path.open(encoding=CSV_ENCODING, errors="replace", newline="") as file:
        rows = csv.reader(file)
        next(rows, None)
        return next(rows, None) is None


def _csv_line(cells: list[str]) -> str:
    file = io.StringIO()
    csv.writer(file).writerow(cells)
    return file.getvalue()


def _cannot_write(path: Path, error: OSError) -> TrainingError:
    return TrainingError(
        f"{path}: cannot be written: {error.strerror}; the answer was not saved; free space, or allow "
        "writing, and answer again"
    )
