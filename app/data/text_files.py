"""Text files and streams: checks before any row is read, and their decoded lines."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..config.file_formats import FORMATS
from ..errors import InputError, excerpt, listed, nearest, shorten
from ..words import _

MAGIC = {
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"BZh91AY": "a bzip2 file; unpack it first",
    b"\xfd7zXZ\x00": "an xz file; unpack it first",
    b"\x28\xb5\x2f\xfd": "a Zstandard file; unpack it first",
    b"PK\x03\x04": "a ZIP or Excel file; unpack it, or set --data.format xlsx",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file, or one with a password; "
    "save it as .xlsx or CSV (UTF-8), without a password",
    b"PAR1\x15": "a Parquet file; set --data.format parquet",
}
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MARKS = {"utf-16": UTF16_MARKS, "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}
# Of the longest in MAGIC
MAGIC_BYTES = 8


@dataclass(frozen=True)
class Stream:
    """An open binary file that can be read once, such as standard input; messages call it `name`."""

    name: str
    file: BinaryIO
    suffix = ""

    def __str__(self) -> str:
        return self.name


Source = Path | Stream


class Span(NamedTuple):
    """A range of the rows of a file, which begins and ends where records do: from `start` to before `end`, in
    bytes, of Parquet in rows. `line` is the number of its first line or row."""

    start: int
    end: int
    line: int


def check_file(path: Source, format: str, encoding: str) -> None:
    """Raise InputError unless `path` is a stream or a regular file that begins as its `format` does."""
    codec = codec_name(encoding)
    magic = FORMATS[format].magic if format in FORMATS else b""
    if isinstance(path, Stream) and magic:
        raise InputError(f"{path}: {format} files cannot be read from a stream; save it to a file first")
    start = read_start(path, MAGIC_BYTES)
    if not magic:
        _check_text(path, start, codec)
    elif not start.startswith(magic):
        _refuse_known(path, start, format)


def read_start(path: Source, size: int) -> bytes:
    """Return up to `size` first bytes of a file; of a stream maybe fewer, which remain to be read. Raises
    InputError for what is no stream or regular file that can be read, and for an empty one."""
    if not isinstance(path, Stream):
        _check_path(path)
    try:
        with _open(path) as file:
            start = file.peek(size)[:size] if isinstance(path, Stream) else file.read(size)
    except OSError as error:
        raise InputError(cannot_be_read(path, error)) from error
    if not start:
        raise InputError(_("{path}: there are no rows, the file is empty").format(path=path))
    return start


def _refuse_known(path: Source, start: bytes, needed: str) -> None:
    """Raise InputError if `start`, a file's first bytes, is of a known kind that is not the needed one."""
    for magic, what in MAGIC.items():
        if start.startswith(magic):
            raise InputError(
                _("{path}: {needed} is needed, found {what}").format(path=path, needed=needed, what=what)
            )


def _check_text(path: Source, start: bytes, codec: str) -> None:
    """Raise InputError if `start`, the first bytes of a file, is not text or is in another encoding."""
    _refuse_known(path, start, "text")
    if start.startswith(codecs.BOM_UTF8) and not codec.startswith("utf"):
        raise InputError(
            f"{path}: {codec} text is needed, found UTF-8 text with a byte order mark; "
            "set --data.encoding utf-8"
        )
    if start.startswith(UTF16_MARKS) and not codec.startswith(("utf-16", "utf-32")):
        raise InputError(f"{path}: {codec} text is needed, found UTF-16 text; set --data.encoding utf-16")
    if not start.startswith(MARKS.get(codec, (b"",))):
        raise InputError(
            f"{path}: {codec.upper()} text must begin with a byte order mark, found {start[:4]!r}; set "
            f"--data.encoding to utf-8, or to {codec}-le or {codec}-be, which need no mark"
        )


def codec_name(encoding: str) -> str:
    """Return Python's name of an encoding; raises InputError where that has none, or cannot read lines."""
    try:
        "".encode(encoding)
        # Idna and punycode cannot continue after a bad byte
        b"-".decode(encoding, errors="surrogateescape")
    except UnicodeDecodeError:
        # Half a character of UTF-16
        pass
    except (LookupError, UnicodeError, ValueError) as error:
        # ValueError: a NUL in the name
        raise InputError(
            f"data.encoding must be a text encoding that Python knows, found '{shorten(encoding)}'; try "
            "utf-8 or gb18030"
        ) from error
    return codecs.lookup(encoding).name


def _check_path(path: Path) -> None:
    """Raise InputError unless `path` is a regular file, or a link to one."""
    try:
        if path.is_file():
            return
        raise InputError(_("{path}: {problem}").format(path=path, problem=_what_is_there(path)))
    except OSError as error:
        # A name that is too long, a folder that may not be entered
        raise InputError(cannot_be_read(shorten(str(path)), error)) from error


def is_utf8(path: Path) -> bool:
    """Return whether a file is text in UTF-8; raises InputError for what is no regular file."""
    _check_path(path)
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    except OSError as error:
        raise InputError(cannot_be_read(path, error)) from error
    return True


def _what_is_there(path: Path) -> str:
    """Return what is at `path` instead of a file, and the remedy."""
    if path.is_dir():
        names = listed(sorted(os.listdir(path)), 8) or "(it is empty)"
        return _("a file is needed, found a directory; name one of its files: {names}").format(names=names)
    if path.exists():
        return "a regular file is needed, found a pipe or a device; save its content to a file first"
    if path.is_symlink():
        return f"there is no such file: it is a link to {shorten(os.readlink(path), 200)}, which is not there"
    if path.parent.is_dir():
        hint = nearest(path.name, os.listdir(path.parent))
    else:
        hint = _("; there is no folder {folder}").format(folder=path.parent)
    return _("there is no such file{hint}").format(hint=hint)


def cannot_be_read(path: Source | str, error: OSError) -> str:
    """Return what is said of a file that the system does not let be read."""
    return _("{path}: cannot be read: {why}").format(path=path, why=error.strerror)


def _open(path: Source) -> AbstractContextManager[BinaryIO]:
    return nullcontext(path.file) if isinstance(path, Stream) else path.open("rb")


def read_lines(path: Source, encoding: str, span: Span | None = None) -> Iterator[str]:
    """Yield decoded lines, with `span` those in it; bytes that cannot be decoded become surrogates, which
    `app.data.rows` reports with the line.

    Lines end at \\n only: other separators (U+2028, form feed) are part of the text. If the byte 0x0A is not
    a line feed, as in UTF-16, UTF-32 and EBCDIC, the file is decoded as a stream.
    """
    first, is_stream = span.line if span else 1, not ends_lines_with_lf(encoding)
    number = first - 1
    try:
        with _open(path) as file:
            if is_stream:
                lines: Iterable[str] = io.TextIOWrapper(
                    file, encoding=encoding, errors="surrogatepass", newline="\n"
                )
            else:
                lines = (
                    line.decode(encoding, errors="surrogateescape")
                    for line in (file if span is None else _lines_in(file, span))
                )
            for number, line in enumerate(lines, first):
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeDecodeError as error:
        line = f"from line {number + 1} on" if is_stream else f"line {number + 1}"
        said = _("{where}: not valid {encoding} text ({why}); set --data.encoding")
        said = said.format(where=f"{path}, {line}", encoding=encoding, why=error.reason)
        raise InputError(said) from error
    except OSError as error:
        raise InputError(f"{path}, line {number + 1}: cannot be read: {error.strerror}") from error


def ends_lines_with_lf(encoding: str) -> bool:
    """Return whether the byte 0x0A is a line feed, so that lines can be found without decoding."""
    return "\n".encode(encoding) == b"\n"


def _lines_in(file: BinaryIO, span: Span) -> Iterator[bytes]:
    file.seek(span.start)
    left = span.end - span.start
    while left > 0 and (line := file.readline()):
        left -= len(line)
        yield line


def check_characters(text: str, what: str) -> None:
    """Raise ValueError for bytes that could not be decoded and for unpaired surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if 0xDC80 <= code <= 0xDCFF:
            said = _(
                "invalid byte {byte} in the {what} {text}; set --data.encoding (gb18030 for most older "
                "Chinese files, big5 for traditional ones) or fix the file"
            )
            said = said.format(byte=f"0x{code - 0xDC00:02x}", what=_(what), text=excerpt(text))
            raise ValueError(said) from error
        raise ValueError(
            f"unpaired surrogate U+{code:04X} in the {what} {excerpt(text)}; fix the file"
        ) from error
