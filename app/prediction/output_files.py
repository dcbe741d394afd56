"""The files that a command writes: new ones, or with --overwrite in the place of others, complete or not at
all; or standard output."""

from __future__ import annotations

import codecs
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO
from zipfile import is_zipfile

from ..errors import InputError, TrainingError, shorten
from ..runtime.disk import CSV_ENCODING, is_full, system_errors

logger = logging.getLogger(__name__)
# This handler of errors writes U+FFFD for bytes that could not be decoded, and for halves of characters
REPLACED = "replaced_by_fffd"
codecs.register_error(REPLACED, lambda error: ("\ufffd".encode() * (error.end - error.start), error.end))
# Files of these formats can be opened only when they are complete
CLOSED_FORMATS = ("parquet", "xlsx")


def check_output(
    path: str | Path, option: str = "--output", overwrite: bool = False, source: str | None = None
) -> None:
    """Raise InputError unless a file can be made at `path`: only with `overwrite` is one replaced, and never
    the file that is read, `source`."""
    name = f"{option} {shorten(str(path), 200)}"
    check_parent(path, name)
    if os.path.isdir(path):
        raise InputError(f"{name}: a file is needed, and this is a folder; choose another name")
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise InputError(f"{name}: the file exists; choose another name, or replace it with --overwrite")
    if not os.path.isfile(path):
        raise InputError(f"{name}: this is no file with content, so it is not replaced; choose another name")
    check_not_read(path, name, source)


def check_parent(path: str | Path, name: str) -> None:
    """Raise InputError where the folder is not there in which `path` is to be made."""
    parent = Path(path).parent
    if not os.path.isdir(parent):
        folder = shorten(str(parent), 200)
        raise InputError(f"{name}: there is no folder {folder}; make it, or choose another name")


def check_not_read(path: str | Path, name: str, source: str | None) -> None:
    """Raise InputError where a file that would be replaced is the one that is read."""
    if source is not None and os.path.exists(source) and os.path.samefile(path, source):
        raise InputError(f"{name}: this file is read, so it is not replaced; choose another name")


def final_path(path: str | Path, overwrite: bool) -> Path:
    """Return where a complete file is moved to: a link stays, and its file is replaced."""
    if overwrite:
        return Path(os.path.realpath(path))
    return Path(path)


@contextmanager
def open_output(path: str | Path | None, format: str, overwrite: bool = False) -> Iterator[TextIO]:
    """Yield the file to write to: standard output, or one beside `path`, which is renamed to it once
    complete, unless there is such a file by then that may not be replaced (`overwrite`). A file of CSV begins
    with the mark that Excel needs.

    Until then it is called `path`.XXXXXXXX.part, unlike any other file. An interrupted run leaves its rows
    there and says where, if the `format` can be read without its end. Raises TrainingError for a file that
    cannot be written to the end.
    """
    if path is None:
        with standard_output() as file:
            yield file
        return
    encoding = CSV_ENCODING if format == "csv" else "utf-8"
    after_failure = partial(_keep_or_remove, format=format)
    with _moved_when_complete(path, "--output", overwrite, encoding, after_failure) as file:
        yield file


@contextmanager
def _moved_when_complete(
    path: str | Path,
    option: str,
    overwrite: bool,
    encoding: str,
    after_failure: Callable[[Path], None],
) -> Iterator[TextIO]:
    """Yield an unfinished file beside `path`, which is renamed to it once it is complete and on the disk; if
    it never is, call `after_failure` with the unfinished one. Messages call the file by its `option`."""
    target = final_path(path, overwrite)
    part = unfinished(target)
    try:
        open_part = partial(part.open, "x", encoding=encoding, errors=REPLACED, newline="")
        with written(f"{option} {path}"), open_part() as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check_output(path, option, overwrite)
        part.replace(target)
    except BaseException:
        after_failure(part)
        raise


def _keep_or_remove(part: Path, format: str) -> None:
    """Keep the rows of an interrupted run where they can be read, else remove them, and say what was done."""
    has_rows = part.exists() and part.stat().st_size > 0
    if has_rows and can_be_opened(part, format):
        logger.warning("stopped early; the rows so far are in %s", part)
        return
    part.unlink(missing_ok=True)
    if has_rows or format in CLOSED_FORMATS:
        logger.warning(
            "stopped early; no rows are kept, because half a file of %s cannot be opened; CSV and JSON "
            "Lines keep the rows so far",
            format,
        )


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Yield standard output, in UTF-8 where it is no terminal. Raises TrainingError where it cannot be
    written, BrokenPipeError where its reader has closed it."""
    if sys.stdout is None:
        raise TrainingError("standard output is closed; set --output to a file, or leave it open")
    if sys.stdout.isatty():
        sys.stdout.reconfigure(errors="backslashreplace", newline="")
    else:
        sys.stdout.reconfigure(encoding="utf-8", errors=REPLACED, newline="")
    with written("standard output"):
        yield sys.stdout
        sys.stdout.flush()


def unfinished(path: str | Path) -> Path:
    """Return the name of the unfinished file beside `path`, unlike that of any other file."""
    return Path(f"{path}.{secrets.token_hex(4)}.part").absolute()


def can_be_opened(part: Path, format: str) -> bool:
    """Return whether a file that may lack its end can be opened in a `format`. Parquet and Excel have the
    list of their parts at the end, and it is written where a run is interrupted, but not on a full disk."""
    if format == "xlsx":
        return is_zipfile(part)
    if format == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        try:
            parquet.read_schema(part)
        except (OSError, pa.ArrowException):
            return False
    return True


def write_page(path: Path, page: str, option: str, overwrite: bool = False) -> None:
    """Write a page to a file, whole or not at all. Raises InputError where there is such a file by then that
    may not be replaced, and TrainingError where it cannot be written; messages call it by its `option`."""
    with _moved_when_complete(path, option, overwrite, "utf-8", _remove) as file:
        file.write(page)


def _remove(part: Path) -> None:
    part.unlink(missing_ok=True)


@contextmanager
def written(output_name: str) -> Iterator[None]:
    """Raise TrainingError in place of an OSError inside; a closed pipe stays BrokenPipeError."""
    try:
        with system_errors():
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        remedy = "free space on the disk" if is_full(error) else "write to another place"
        raise TrainingError(
            f"{output_name}: cannot be written: {error.strerror or error}; {remedy} and run it again"
        ) from error
