"""Where the rows to classify come from, and where their predictions go: files, streams and the terminal."""

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
    from app.prediction.predictor import Prediction  # imports torch, and wrong input is told before that

logger = logging.getLogger(__name__)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
SHOWN = 10  # bad rows that are listed, and labels that a person is shown


@dataclass
class Source:
    """Rows to classify; `read(remove_spaces)` starts at the first one, which a stream can do only once.

    Of the rows read so far `num_good` are valid and `num_bad` are not; `bad` keeps the first few of these.
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
        """Yield the valid rows; raises InputError at the first bad one unless `skip`."""
        self.bad, self.num_good, self.num_bad = [], 0, 0
        for row in self.read(remove_spaces):
            if isinstance(row, Row):
                self.num_good += 1
                yield row
                continue
            self.num_bad += 1
            self.bad += [row] if len(self.bad) < SHOWN else []
            if not skip:
                self._refuse()

    def count(self, skip: bool) -> int:
        """Return the number of valid rows, reading all; raises InputError for bad ones unless `skip`, and for none left."""
        for _ in self.good_rows(remove_spaces=False, skip=True):
            pass
        if self.num_bad and not skip:
            self._refuse()
        if not self.num_good:
            raise InputError(f"there are no rows left, all break a rule; {self.summary()}")
        return self.num_good

    def _refuse(self) -> None:
        first = self.bad[0]
        more = f"; {self.num_bad:,} rows in all break a rule" if self.num_bad > 1 else ""
        raise InputError(f"{self.name}, {self.place} {first.line}: {first.problem} (or --on_bad_row skip){more}")

    def summary(self) -> str:
        """Return what was read, for people: rows, columns, and the bad rows that were left out."""
        columns = f" ({self.notes['columns']})" if self.notes.get("columns") else ""
        left_out = f", {self.num_bad:,} left out" if self.num_bad else ""
        lines = [f"{self.name}: {self.num_good:,} rows{columns}{left_out}"]
        lines += [f"  {self.place} {row.line}: {row.problem}" for row in self.bad]
        lines += [f"  ... and {self.num_bad - len(self.bad):,} more"] if self.num_bad > len(self.bad) else []
        return "\n".join(lines)


def open_texts(texts: list[str]) -> Source:
    """Return texts of the command line as a source."""
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
    """Return whether there is a named pipe at `path`; a name that cannot be looked up is none, and told when it is opened."""
    try:
        return path.is_fifo()
    except OSError:
        return False


def check_output(path: str, input_path: str | None) -> None:
    """Raise InputError unless a file can be made at `path`, which must not be the file `input_path`."""
    target = Path(path)
    try:
        if target.is_dir():
            raise InputError(f"--output {path}: a file is needed, found a directory")
        if not target.parent.is_dir():
            raise InputError(f"--output {path}: there is no folder {target.parent}; make it first")
        if input_path is not None and target.is_file() and Path(input_path).exists() and target.samefile(input_path):
            raise InputError(f"--output {path}: this is the input itself; choose another name")
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InputError(f"--output {shorten(path)}: cannot be written: {error.strerror}") from error


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Give the file to write to: standard output, or a file that stands under its own name only when it is whole.

    What an interrupted run has written stays in `path`.part.
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
        logger.warning("stopped early; %s has the rows so far", part)
        raise
    if not is_special:
        part.replace(target)


@contextmanager
def progress(total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Give a function that moves a progress bar on by a number of rows."""
    from tqdm import tqdm

    with tqdm(total=total, unit=" rows", unit_scale=True, dynamic_ncols=True, disable=not shown, delay=1) as bar:
        yield bar.update


def write_csv(file: TextIO, predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool) -> None:
    """Write predictions as CSV with a header: line, text, text_pair, label, probability, p_<label> for each label.

    Texts are written as they were read, those that a spreadsheet would take for formulas too: see docs/data.md.
    """
    writer = csv.writer(file)
    pairs = ["text_pair"] if has_pairs else []
    writer.writerow(["line", "text", *pairs, "label", "probability", *(f"p_{name}" for name in label_names)])
    for row, label, shares in predictions:
        texts = [row.text, row.pair] if has_pairs else [row.text]
        writer.writerow([row.line, *texts, label, f"{shares.max():.6f}", *(f"{share:.6f}" for share in shares)])


def write_jsonl(file: TextIO, predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool) -> None:
    """Write predictions as JSON Lines, an object each; its keys are the columns of `write_csv`."""
    for row, label, shares in predictions:
        record = {"line": row.line, "text": row.text} | ({"text_pair": row.pair} if has_pairs else {})
        record |= {"label": label, "probability": round(float(shares.max()), 6)}
        record |= {f"p_{name}": round(float(share), 6) for name, share in zip(label_names, shares, strict=True)}
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_lines(file: TextIO, predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool) -> None:
    """Write predictions for people: label, probability and text, then the next likely labels."""
    for row, label, shares in predictions:
        ranked = sorted(zip(shares, label_names, strict=True), reverse=True)
        others = [f"{name} {share:.4f}" for share, name in ranked[1:SHOWN]]
        others += [f"and {len(ranked) - SHOWN:,} more labels"] if len(ranked) > SHOWN else []
        # Control characters would steer the terminal.
        lines = f"{label} {shares.max():.4f}  {' '.join(row.text.split())}", f"    {'  '.join(others)}"
        file.writelines(CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line) + "\n" for line in lines)


WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "lines": write_lines}
