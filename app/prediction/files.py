"""Rows to classify, from files, streams or the command line; and writers of their predictions."""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from app.data.readers import BadRow, ReadOptions, place
from app.data.rows import Row, read_rows, text_rows
from app.data.text_files import Stream
from app.errors import InputError, shorten

if TYPE_CHECKING:
    from app.prediction.predictor import Prediction  # imports torch; bad input is reported before that

logger = logging.getLogger(__name__)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
MOST_SHOWN = 10  # bad rows in a summary, and labels of a prediction for people


@dataclass
class Source:
    """Rows to classify; `read(remove_spaces)` starts at the first one, which a stream can do only once.

    `num_good` and `num_bad` count the valid and the invalid rows read so far; `bad` keeps the first few invalid ones.
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

    def good_rows(self, remove_spaces: bool, skip: bool) -> Iterator[Row]:
        """Yield the valid rows; raises InputError at the first invalid one unless `skip`."""
        self.bad, self.num_good, self.num_bad = [], 0, 0
        for row in self.read(remove_spaces):
            if isinstance(row, Row):
                self.num_good += 1
                yield row
                continue
            self.num_bad += 1
            self.bad += [row] if len(self.bad) < MOST_SHOWN else []
            if not skip:
                self._refuse()

    def count(self, skip: bool) -> int:
        """Read all rows and return the number of valid ones; raises InputError for invalid ones unless `skip`, and for no valid row."""
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
        raise InputError(f"{self.name}, {self.place} {first.line}: {first.problem} (or --on_bad_row skip){more}")

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


def open_file(path: str, options: ReadOptions) -> Source:
    """Return a file as a source; `-` is standard input, and a pipe is read as a stream. `options.format` is not auto."""
    file: Path | Stream = Path(path)
    if path == "-":
        if sys.stdin is None:
            raise InputError("<stdin>: standard input is closed; name a file with --input")
        file = Stream("<stdin>", sys.stdin.buffer)
    elif is_pipe(file):
        file = Stream(path, file.open("rb"))
    is_stream = isinstance(file, Stream)
    notes: dict = {}

    def read(remove_spaces: bool) -> Iterator[Row | BadRow]:
        return read_rows(file, replace(options, remove_spaces=remove_spaces), need_label=False, notes=notes)

    return Source(str(file), place(options.format), read, is_stream, is_stream and file.file.isatty(), notes)


def is_pipe(path: Path) -> bool:
    """Return whether there is a named pipe at `path`; a name that cannot be looked up is none, and fails when it is opened."""
    try:
        return path.is_fifo()
    except OSError:
        return False


def check_output(path: str, input_path: str | None) -> None:
    """Raise InputError if a file cannot be created at `path`, or if it is the file `input_path`."""
    target = Path(path)
    try:
        if target.is_dir():
            raise InputError(f"--output {path}: a file is needed, found a directory")
        if not target.parent.is_dir():
            raise InputError(f"--output {path}: there is no folder {target.parent}; create it first")
        if input_path is not None and target.is_file() and Path(input_path).exists() and target.samefile(input_path):
            raise InputError(f"--output {path}: this is the input file; choose another name")
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InputError(f"--output {shorten(path)}: cannot be written: {error.strerror}") from error


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Yield the file to write to: standard output, or `path`.part, which is renamed to `path` once it is complete.

    An interrupted run leaves its rows in `path`.part.
    """
    if path is None:
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace", newline="")
        else:
            sys.stdout.reconfigure(encoding="utf-8", newline="")
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(path).resolve()
    is_special = target.exists() and not target.is_file()  # /dev/null or a pipe must not be replaced
    part = target if is_special else target.with_name(f"{target.name}.part")
    try:
        file = part.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"--output {path}: {part} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
    except BaseException:
        logger.warning("stopped early; the rows so far are in %s", part)
        raise
    if not is_special:
        part.replace(target)


@contextmanager
def progress(total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar by a number of rows."""
    from tqdm import tqdm

    with tqdm(total=total, unit=" rows", unit_scale=True, dynamic_ncols=True, disable=not shown, delay=1) as bar:
        yield bar.update


def write_csv(file: TextIO, predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool) -> None:
    """Write predictions as CSV with a header: line, text, text_pair, label, probability, p_<label> for each label.

    Texts are written as they were read, even those that a spreadsheet would run as formulas: see docs/data.md.
    """
    writer = csv.writer(file)
    pairs = ["text_pair"] if has_pairs else []
    writer.writerow(["line", "text", *pairs, "label", "probability", *(f"p_{name}" for name in label_names)])
    for row, label, probabilities in predictions:
        texts = [row.text, row.pair] if has_pairs else [row.text]
        by_label = (f"{probability:.6f}" for probability in probabilities)
        writer.writerow([row.line, *texts, label, f"{probabilities.max():.6f}", *by_label])


def write_jsonl(file: TextIO, predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool) -> None:
    """Write predictions as JSON Lines, one object a line with the columns of `write_csv` as keys."""
    for row, label, probabilities in predictions:
        record = {"line": row.line, "text": row.text} | ({"text_pair": row.pair} if has_pairs else {})
        record |= {"label": label, "probability": round(float(probabilities.max()), 6)}
        by_label = zip(label_names, probabilities, strict=True)
        record |= {f"p_{name}": round(float(probability), 6) for name, probability in by_label}
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_lines(file: TextIO, predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool) -> None:
    """Write predictions for people: label, probability and text, then the other labels from the most probable on."""
    for row, label, probabilities in predictions:
        ranked = sorted(zip(probabilities, label_names, strict=True), reverse=True)
        others = [f"{name} {probability:.4f}" for probability, name in ranked[1:MOST_SHOWN]]
        others += [f"and {len(ranked) - MOST_SHOWN:,} more labels"] if len(ranked) > MOST_SHOWN else []
        lines = f"{label} {probabilities.max():.4f}  {' '.join(row.text.split())}", f"    {'  '.join(others)}"
        # Escapes of control characters: a terminal would act on the characters themselves.
        file.writelines(CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line) + "\n" for line in lines)


WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "lines": write_lines}
