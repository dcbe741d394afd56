"""Text files and streams: what is refused before any row is read, and their decoded lines."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.errors import InputError, excerpt, nearest

MAGIC = {
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"PK\x03\x04": "a ZIP or Excel file; save it as CSV (UTF-8)",
}
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Stream:
    """An open binary file that can be read once, such as standard input; `name` stands for it in messages."""

    name: str
    file: BinaryIO
    suffix = ""

    def __str__(self) -> str:
        return self.name


Source = Path | Stream


def check_file(path: Source, format: str, encoding: str = "utf-8") -> None:
    """Raise InputError unless `path` is a stream or a regular file, not empty, of the kind that `format` wants."""
    codec = codec_name(encoding)
    if not isinstance(path, Stream):
        _check_path(path)
    elif format == "parquet":
        raise InputError(f"{path}: Parquet cannot be read from a stream; save it to a file first")
    try:
        with _open(path) as file:
            start = file.peek(4)[:4]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if not start:
        raise InputError(f"{path}: there are no rows, the file is empty")
    if format == "parquet":
        return
    for magic, what in MAGIC.items():
        if start.startswith(magic):
            raise InputError(f"{path}: text is needed, found {what}")
    if start[:2] in UTF16_MARKS and not codec.startswith(("utf-16", "utf-32")):
        raise InputError(f"{path}: {codec} text is needed, found UTF-16 text; set --data.encoding utf-16")
    if codec == "utf-16" and start[:2] not in UTF16_MARKS:
        raise InputError(
            f"{path}: UTF-16 text must begin with a byte order mark, found {start!r}; set --data.encoding to utf-8, or to "
            "utf-16-le or utf-16-be, which need no mark"
        )


def codec_name(encoding: str) -> str:
    """Return Python's own name of an encoding; raises InputError for one that it does not know."""
    try:
        "".encode(encoding)
        return codecs.lookup(encoding).name
    except (LookupError, UnicodeError) as error:
        raise InputError(
            f"data.encoding must be an encoding of text that Python knows, found '{encoding}'; try utf-8 or gb18030"
        ) from error


def _check_path(path: Path) -> None:
    try:
        exists = path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InputError(f"{excerpt(str(path))}: cannot be read: {error.strerror}") from error
    if not exists:
        folder = path.parent
        near = f"; there is no folder {folder}"
        if folder.is_dir():
            near = nearest(path.name, [p.name for p in folder.iterdir()])
        raise InputError(f"{path}: there is no such file{near}")
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir())[:8]
        raise InputError(
            f"{path}: a file is needed, found a directory; name one of its files: {', '.join(names) or '(it is empty)'}"
        )
    if not path.is_file():
        raise InputError(
            f"{path}: a regular file is needed, found a pipe or a device; save its content to a file first"
        )


def _open(path: Source) -> AbstractContextManager[BinaryIO]:
    return nullcontext(path.file) if isinstance(path, Stream) else path.open("rb")


def read_lines(path: Source, encoding: str) -> Iterator[str]:
    """Yield decoded lines; undecodable bytes become lone surrogates, which `app.data.rows` refuses with the line's number.

    Lines end at \\n only: other separators (U+2028, form feed) are part of the text. UTF-16 and UTF-32 have no byte for
    a line end, so they are decoded as a stream.
    """
    with _open(path) as file:
        if codec_name(encoding).startswith(("utf-16", "utf-32")):
            lines: Iterable[str] = io.TextIOWrapper(file, encoding=encoding, errors="surrogatepass", newline="\n")
        else:
            lines = (line.decode(encoding, errors="surrogateescape") for line in file)
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                yield line.removeprefix("\ufeff") if number == 1 else line
        except UnicodeDecodeError as error:
            where = f"{path}, line {number + 1}"
            raise InputError(f"{where}: not valid {encoding} text ({error.reason}); set --data.encoding") from error
