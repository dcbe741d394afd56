"""The file that predictions are written to, standard output, or the terminal."""

import logging
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ..errors import InputError, TrainingError, shorten
from ..runtime.disk import check_new, is_full

logger = logging.getLogger(__name__)
# Bytes of the name of an output in the name of its unfinished file; a name may have 255
MAX_START = 200
# What `PredictionWriter` writes, by the end of a file's name
SUFFIXES = {f".{name}": name for name in ("csv", "xlsx", "jsonl", "parquet")} | {".ndjson": "jsonl"}


def check_output(path: str | None, input_path: str | None) -> None:
    """Raise InputError if no new file can be made at `path`; `input_path` (`-`: stdin) is the input. Without
    `path`, standard output must be open, and must not be a file that is the input."""
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
        check_new(target)
    except OSError as error:
        # A name that is too long, a folder that may not be entered
        raise InputError(f"--output {shorten(path)}: cannot be written: {error.strerror}") from error


def _identity(file: Path | TextIO) -> tuple[int, int] | None:
    """Return device and inode of a regular file; None for a terminal, a pipe, a device, a stream."""
    try:
        status = file.stat() if isinstance(file, Path) else os.fstat(file.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _input_identity(path: str | None) -> tuple[int, int] | None:
    return None if path is None else _identity(sys.stdin if path == "-" else Path(path))


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Yield the file to write to: standard output, or one beside `path`, renamed to it once complete, unless
    there is such a file by then.

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
            check_new(target)
            part.replace(target)
    except BaseException as error:
        if not is_special:
            _keep_rows(part)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise cannot_write(f"--output {path}", error) from error
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
        raise cannot_write("standard output", error) from error


def cannot_write(what: str, error: OSError) -> TrainingError:
    """Return the error of a place that cannot be written to."""
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
