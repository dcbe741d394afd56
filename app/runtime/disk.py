"""Files that are whole or absent: written under another name, synced, then renamed. And full disks."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..errors import InputError, readable, shorten

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OF_THE_SYSTEM = (*FULL, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT, errno.EROFS)
OF_THE_SYSTEM += (errno.EACCES, errno.EPERM)


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with whole_file(path) as file:
        file.write(text.encode())


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write to, which is at `path` once it is complete and on the disk."""
    aside = path.with_name(f".{path.name}")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def whole_files(aside: Path, folder: Path) -> Iterator[Path]:
    """Yield `aside`, an empty folder whose files are in `folder` once all are complete and on the disk."""
    shutil.rmtree(aside, ignore_errors=True)
    # Not a new folder in the place of one that was renamed meanwhile
    aside.mkdir()
    try:
        yield aside
        for path in aside.iterdir():
            sync(path)
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_json(path: Path, value: object) -> None:
    """Write JSON with Chinese characters as they are, whole or not at all."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file in UTF-8. Raises InputError for invalid JSON, a repeated key, a file
    that cannot be read, or no regular file (a pipe would be waited for)."""
    with readable(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: a regular file is needed, not a directory, a pipe or a device")
        content = path.read_bytes()
    try:
        return json.loads(content.decode(), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}") from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict:
    """Return a JSON object, as json's `object_pairs_hook`; raises ValueError for a key that is twice."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key '{shorten(key)}' is twice in an object; keep one of them")
        values[key] = value
    return values


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_full(error: Exception) -> bool:
    """Return whether an error means that the disk, the quota or the allowed file size is used up."""
    # safetensors gives the system's error only as text, and numpy only the numbers of values.
    text = str(error)
    is_short = isinstance(error, OSError) and error.errno is None and " requested and " in text
    of_system = getattr(error, "errno", None) in FULL
    return of_system or is_short or any(f"os error {number})" in text for number in FULL)
