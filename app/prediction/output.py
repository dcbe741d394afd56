"""Predictions written to a file, standard output or the terminal."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..errors import InputError, TrainingError, shorten
from ..evaluation.text_table import short_label
from ..runtime.disk import is_full
from .excel import write_sheet

if TYPE_CHECKING:
    import numpy as np

    # Imports numpy; bad input is reported before that
    from .predictor import Prediction

logger = logging.getLogger(__name__)
# Control characters, and those that change the direction of what follows.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Bytes of the name of an output in the name of its unfinished file; a name may have 255
MAX_START = 200
# Of a prediction for people
MAX_LABELS = 10


def check_output(path: str | None, input_path: str | None) -> None:
    """Raise InputError if a file cannot be created at `path`, or if it is the file `input_path` (`-`:
    standard input).

    Without `path`, standard output must be open, and must not be a file that is the input.
    """
    if path is None:
        if sys.stdout is None:
            raise InputError("standard output is closed; name a file with --output")
        written = _identity(sys.stdout)
        if written is not None and written == _input_identity(input_path):
            raise InputError("standard output: this is the input file; name another file with --output")
        return
    target = Path(path)
    try:
        if target.is_dir():
            raise InputError(f"--output {path}: a file is needed, found a directory")
        if not target.parent.is_dir():
            raise InputError(f"--output {path}: there is no folder {target.parent}; create it first")
        written = _identity(target) if target.exists() else None
        if written is not None and written == _input_identity(input_path):
            raise InputError(f"--output {path}: this is the input file; choose another name")
    except OSError as error:
        # A name that is too long, a folder that may not be entered
        raise InputError(f"--output {shorten(path)}: cannot be written: {error.strerror}") from error


def _identity(file: Path | TextIO) -> tuple[int, int] | None:
    """Return device and inode of a regular file; None for a terminal, a pipe, a device, and a stream in
    memory."""
    try:
        status = file.stat() if isinstance(file, Path) else os.fstat(file.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _input_identity(path: str | None) -> tuple[int, int] | None:
    return None if path is None else _identity(sys.stdin if path == "-" else Path(path))


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Yield the file to write to: standard output, or a new file beside `path`, which is renamed to `path`
    once it is complete.

    Its name is unlike that of any other file, `path`.XXXXXXXX.part. An interrupted run leaves its rows there
    and says where. Raises InputError for a file that cannot be opened, TrainingError for one that cannot be
    written to the end.
    """
    if path is None:
        yield from _standard_output()
        return
    target = Path(os.path.realpath(path))
    # /dev/null or a pipe must not be replaced
    is_special = target.exists() and not target.is_file()
    part = target if is_special else _new_name(target)
    try:
        file = part.open("w" if is_special else "x", encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"--output {path}: {part} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
        if not is_special:
            part.replace(target)
    except BaseException as error:
        if not is_special:
            _keep_rows(part)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise _cannot_write(f"--output {path}", error) from error
        raise


def _standard_output() -> Iterator[TextIO]:
    if sys.stdout.isatty():
        sys.stdout.reconfigure(errors="backslashreplace", newline="")
    else:
        sys.stdout.reconfigure(encoding="utf-8", newline="")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write("standard output", error) from error


def _cannot_write(what: str, error: OSError) -> TrainingError:
    remedy = "free space on the disk" if is_full(error) else "write to another place"
    return TrainingError(f"{what}: cannot be written: {error.strerror or error}; {remedy} and run it again")


def _new_name(target: Path) -> Path:
    """Return a name beside `target` that no other file has: two processes may write to the same `target`."""
    name = os.fsdecode(os.fsencode(target.name)[:MAX_START])
    return target.with_name(f"{name}.{secrets.token_hex(4)}.part")


def _keep_rows(part: Path) -> None:
    """Say where the rows of an interrupted run are; remove the file where there are none."""
    if part.exists() and part.stat().st_size:
        logger.warning("stopped early; the rows so far are in %s", part)
    else:
        part.unlink(missing_ok=True)


@contextmanager
def progress(total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar by a number of rows."""
    from tqdm import tqdm

    with tqdm(
        total=total, unit=" rows", unit_scale=True, dynamic_ncols=True, disable=not shown, delay=1
    ) as bar:
        yield bar.update


def decision(probabilities: np.ndarray, threshold: float) -> dict[str, str | float]:
    """Return whether a prediction is accepted, and its margin: the largest probability minus the second
    largest."""
    second, first = probabilities[probabilities.argpartition(-2)[-2:]]
    return {
        "decision": "accept" if first >= threshold else "abstain",
        "margin": round(float(first - second), 6),
    }


def write_csv(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    threshold: float | None = None,
) -> None:
    """Write predictions as CSV with a header: line, text, text_pair, label, probability, p_<label> for each
    label.

    With a threshold, the columns decision and margin follow the probability: see `decision`. Texts are
    written as they were read, even those that a spreadsheet would run as formulas: see docs/data.md.
    """
    writer = csv.writer(file)
    pairs = ["text_pair"] if has_pairs else []
    decided = [] if threshold is None else ["decision", "margin"]
    writer.writerow(
        ["line", "text", *pairs, "label", "probability", *decided, *(f"p_{name}" for name in label_names)]
    )
    for row, label, probabilities in predictions:
        texts = [row.text, row.pair] if has_pairs else [row.text]
        by_label = (f"{probability:.6f}" for probability in probabilities)
        decided = [] if threshold is None else decision(probabilities, threshold).values()
        writer.writerow([row.line, *texts, label, f"{probabilities.max():.6f}", *decided, *by_label])


def _records(
    predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool, threshold: float | None
) -> Iterator[dict]:
    """Yield for each prediction the values of the columns of `write_csv`, by their names."""
    for row, label, probabilities in predictions:
        record = {"line": row.line, "text": row.text} | ({"text_pair": row.pair} if has_pairs else {})
        record |= {"label": label, "probability": round(float(probabilities.max()), 6)}
        record |= {} if threshold is None else decision(probabilities, threshold)
        by_label = zip(label_names, probabilities, strict=True)
        yield record | {f"p_{name}": round(float(probability), 6) for name, probability in by_label}


def write_jsonl(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    threshold: float | None = None,
) -> None:
    """Write predictions as JSON Lines, one object a line with the columns of `write_csv` as keys."""
    for record in _records(predictions, label_names, has_pairs, threshold):
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_xlsx(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    threshold: float | None = None,
) -> None:
    """Write predictions as an Excel file with the columns of `write_csv`, all at the end."""
    records = _records(predictions, label_names, has_pairs, threshold)
    first = next(records, {})
    write_sheet(file, list(first), (record.values() for record in chain([first] if first else [], records)))


def write_lines(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    threshold: float | None = None,
) -> None:
    """Write predictions for people: label, probability and text, then the other labels from the most probable
    on."""
    for row, label, probabilities in predictions:
        ranked = sorted(zip(probabilities, label_names, strict=True), reverse=True)
        others = [f"{short_label(name)} {probability:.4f}" for probability, name in ranked[1:MAX_LABELS]]
        others += [f"and {len(ranked) - MAX_LABELS:,} more labels"] if len(ranked) > MAX_LABELS else []
        decided = "" if threshold is None else f" {decision(probabilities, threshold)['decision']}"
        lines = (
            f"{short_label(label)} {probabilities.max():.4f}{decided}  {' '.join(row.text.split())}",
            f"    {'  '.join(others)}",
        )
        file.writelines(without_controls(line) + "\n" for line in lines)


def without_controls(line: str) -> str:
    """Return a line with escapes in place of control characters: a terminal would act on the characters
    themselves."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), line)


WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "xlsx": write_xlsx, "lines": write_lines}
