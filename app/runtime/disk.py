"""Files on disk. They are whole or absent: written under another name, synced, then renamed. JSON is checked
when it is read back, and errors of full disks are recognised."""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from ..errors import InputError, excerpt, reading, shorten

if TYPE_CHECKING:
    import pandas as pd

# With a byte order mark, without which Excel in China takes UTF-8 for GBK; for files only, not for pipes
CSV_ENCODING = "utf-8-sig"
# The disk, the quota or the allowed file size is used up
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A user can repair the cause of these errors, and then run the command again
OF_THE_SYSTEM = (
    *FULL,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
)


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


def write_frame(path: Path, frame: "pd.DataFrame") -> None:
    """Write a data frame without its index as CSV that Excel opens, whole or not at all."""
    with whole_file(path) as file:
        file.write(frame.to_csv(index=False).encode(CSV_ENCODING))


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write to, which is at `path` once it is complete and on the disk. Errors of the system
    are raised as OSError, and name the file."""
    aside = path.with_name(f".{path.name}")
    try:
        with system_errors(path), aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def whole_files(aside: Path, folder: Path, before_move: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """Yield `aside`, an empty folder whose files are in `folder` once all are complete and on the disk.
    `before_move` is called before the first one is moved there. Errors of the system are raised as
    OSError."""
    shutil.rmtree(aside, ignore_errors=True)
    # Not a new folder in the place of one that was renamed meanwhile
    aside.mkdir()
    try:
        with system_errors(folder):
            yield aside
            paths = list(aside.iterdir())
            # All are on the disk before the first one replaces an earlier file
            for path in paths:
                sync(path)
            before_move()
            for path in paths:
                path.replace(folder / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def replace_folder(new: Path, folder: Path) -> None:
    """Give a complete folder the name of another one, which is removed then; the other one may be missing.
    Both are in the same folder. A process that is killed here leaves both whole, one of them as .old."""
    if not folder.exists():
        new.rename(folder)
        return
    old = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.old")
    folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def write_json(path: Path, value: object) -> None:
    """Write JSON with Chinese characters as they are, whole or not at all."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path, wanted: Any = Any, remedy: str = "correct it, or copy it again") -> Any:
    """Return the value of a JSON file in UTF-8, which must be what is `wanted`. Raises InputError, with the
    `remedy`, as `parse_json` does, and for a file that cannot be read or is no regular file (a pipe would be
    waited for)."""
    with reading(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: a regular file is needed, not a directory, a pipe or a device")
        content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid JSON: {error}; {remedy}") from error
    return parse_json(text, path, wanted, remedy)


def parse_json(text: str, source: object, wanted: Any, remedy: str) -> Any:
    """Return the value of JSON. `wanted` is its type as in an annotation, such as `dict[str, int]`, or a
    dictionary with what is wanted of the keys that an object must have; it may have others. No value is
    converted to fit. Raises InputError, which names the `source`, for invalid JSON, too many levels, a
    repeated key, a missing one, and another type."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not valid JSON: {error}; {remedy}") from error
    return checked_value(value, wanted, source, "the value", remedy)


def checked_value(value: Any, wanted: Any, source: object, name: str, remedy: str) -> Any:
    """Return a value that is what is `wanted`, see `parse_json`; raises InputError for another one, which is
    called by its `name`."""
    if not isinstance(wanted, dict):
        return _checked_type(value, wanted, source, name, remedy)
    values = _checked_type(value, dict, source, name, remedy)
    for key, wanted_of_key in wanted.items():
        if key not in values:
            raise InputError(f"{source}: the key '{key}' is needed, and it is not there; {remedy}")
        checked_value(values[key], wanted_of_key, source, f"'{key}'", remedy)
    return values


def _checked_type(value: Any, wanted: Any, source: object, name: str, remedy: str) -> Any:
    """Return a value of the type `wanted`, an annotation; raises InputError for one of another type."""
    try:
        return TypeAdapter(wanted).validate_python(value, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        path = ", ".join(map(str, [name, *problem["loc"]]))
        rule = problem["msg"].removeprefix("Input should be ")
        raise InputError(
            f"{source}: {path} must be {rule}, found {excerpt(problem['input'])}; {remedy}"
        ) from error


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


@contextmanager
def system_errors(path: Path | None = None) -> Iterator[None]:
    """Raise OSError for errors of the system that libraries in Rust raise as another type: safetensors its
    own, tokenizers a plain Exception. Errors without a file get the name of `path`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError):
            if path is not None and error.errno is not None and error.filename is None:
                error.filename = str(path)
            raise
        code = code_in_text(error)
        if code is None:
            raise
        raise OSError(code, os.strerror(code), path and str(path)) from error


def is_full(error: Exception) -> bool:
    """Return whether an error means that the disk, the quota or the allowed file size is used up."""
    if getattr(error, "errno", None) in FULL:
        return True
    text = str(error)
    # numpy says only how many values it has written of how many
    if isinstance(error, OSError) and error.errno is None and " requested and " in text:
        return True
    return code_in_text(error) in FULL


def code_in_text(error: Exception) -> int | None:
    """Return the number of the system's error that a library in Rust, such as safetensors, gives only as
    text; None for another error."""
    match = re.search(r"\(os error (\d+)\)", str(error))
    if match is None:
        return None
    return int(match[1])
