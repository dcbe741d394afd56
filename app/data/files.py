"""Data files: which ones a setting names, what is in them before any row is read, and their lines."""

from __future__ import annotations

import codecs
import glob
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..config.data_settings import check_address, is_address
from ..errors import InputError, TrainingError, excerpt, listed, nearest, shorten
from ..words import _
from .cache import build_once, content_key
from .file_formats import FORMATS

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
UTF_8, GB18030 = ("utf-8", "utf8"), "gb18030"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# utf-32 first: its mark begins with that of utf-16
MARKS = {"utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-16": UTF16_MARKS}
# Their lines mean the same alone and together, so that many are decoded at once
DECODED_TOGETHER = ("utf-8", "gb18030", "gbk")
BLOCK = 1 << 20  # bytes that are read and decoded together
MAX_ASCII = 64  # blocks of ASCII after which no other bytes are looked for
COUNTED_LINES = 20_000  # lines whose characters are counted to recognise GB18030
# The share of GB 2312's 3,755 common characters is 0.92 to 1 in public sets of Chinese texts, about 0.7 in
# traditional ones, 0.2 in Big5 that is read as GB18030.
COMMON_SHARE = 0.8
# Of the common ones, those from "shi" to "zuo" are 0.28 to 0.44 in public sets, none in Korean (EUC-KR).
LATE_SHARE = 0.15
# Keys by which the file systems of fsspec tell one content of an object from another
VERSIONS = ("size", "ETag", "etag", "LastModified", "last_modified", "mtime", "created", "md5", "checksum")


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


def files_of(value: str | list[str], cache_dir: str) -> list[str]:
    """Return the files that a setting names: a file, a folder, a pattern such as `posts/*.parquet`, or a list
    of these; of addresses such as s3://bucket/posts/ their copies in the cache.

    The files of a folder or a pattern are sorted by name; those of a folder that begin with . or _, and
    folders inside it, are left out. Raises InputError where there are none, and for a file named twice.
    """
    names = [
        name
        for entry in ([value] if isinstance(value, str) else value)
        for name in (local_copies(entry, cache_dir) if is_address(entry) else _files_at(entry))
    ]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{listed(twice)}: a file may be named once only; take one of them out")
    if not names:
        raise InputError("a list of data files must name at least one, found none")
    return names


def _files_at(entry: str) -> list[str]:
    path = Path(entry)
    try:
        if entry and path.is_dir():
            names = [str(file) for file in path.iterdir() if file.is_file() and file.name[0] not in "._"]
        elif glob.has_magic(entry) and not path.exists():
            names = [name for name in glob.glob(entry, recursive=True) if Path(name).is_file()]
        else:
            return [entry]
    except OSError as error:
        raise InputError(
            _("{path}: cannot be read: {why}").format(path=shorten(entry), why=error.strerror)
        ) from error
    if not names:
        raise InputError(f"{entry}: there are no files; write a pattern in quotes, such as 'posts/*.parquet'")
    return sorted(names)


def local_copies(address: str, cache_dir: str) -> list[str]:
    """Return the local copies of the files at an address: a file, those in a folder but for hidden ones, or
    those of a pattern, sorted by name.

    A copy is made once for each content of a file. fsspec finds the credentials; nothing of them is in a
    setting, a message or a file of ours. Raises InputError where there is no file, TrainingError where one
    cannot be read.
    """
    # torch needs it too
    import fsspec

    check_address("a data file", address)
    with _reading(address):
        try:
            system, path = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError):
            raise InputError(
                f"{address}: files of {address.partition('://')[0]}:// need a package; pip install -r "
                "requirements/remote.txt has those of s3:// and oss://"
            ) from None
        system.invalidate_cache()
        paths = [path]
        if not address.startswith(("http://", "https://")):
            if glob.has_magic(path):
                paths = [one for one in system.glob(path) if system.isfile(one)]
            elif system.isdir(path):
                entries = system.ls(path, detail=True)
                paths = [entry["name"] for entry in entries if entry["type"] == "file"]
                paths = [one for one in paths if one.rpartition("/")[2][:1] not in (".", "_", "")]
    if not paths:
        raise InputError(f"{address}: there are no files")
    copies = []
    for path in sorted(paths):
        name = system.unstrip_protocol(path)
        with _reading(name):
            info = system.info(path)
        version = {key: str(info[key]) for key in VERSIONS if key in info}
        folder = Path(cache_dir) / f"remote-{content_key(name, version)}"
        build_once(folder, _copy, system, path, num_bytes=0)
        copies.append(str(folder / path.rpartition("/")[2]))
    return copies


def _copy(folder: Path, system: Any, path: str) -> None:
    with _reading(system.unstrip_protocol(path)):
        system.get_file(path, str(folder / path.rpartition("/")[2]))


@contextmanager
def _reading(address: str) -> Iterator[None]:
    """Give the errors of a file system without their texts: some of these hold the name of a key."""
    try:
        yield
    except (InputError, TrainingError):
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{address}: there is no such file, or it may not be seen, or its server does not answer"
        ) from None
    except Exception as error:  # noqa: BLE001 - each store raises different errors
        raise TrainingError(
            f"{address}: cannot be read ({type(error).__name__}); check the address, the network, and the "
            "credentials in the environment, and start again"
        ) from None


def check_file(path: Source, format: str, encoding: str) -> None:
    """Raise InputError unless `path` is a stream or a regular file that begins as its `format` does."""
    codec = codec_name(encoding)
    magic = FORMATS[format].magic if format in FORMATS else ()
    if isinstance(path, Stream) and magic:
        raise InputError(f"{path}: {format} files cannot be read from a stream; save it to a file first")
    start = read_start(path, max(map(len, MAGIC)))
    if magic and start.startswith(magic):
        return
    for bytes_, what in MAGIC.items():
        if start.startswith(bytes_):
            needed = format if magic else "text"
            raise InputError(
                _("{path}: {needed} is needed, found {what}").format(path=path, needed=needed, what=what)
            )
    if magic:
        return
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


def read_start(path: Source, size: int) -> bytes:
    """Return up to `size` first bytes of a file; of a stream maybe fewer, which remain to be read. Raises
    InputError for what is no stream or regular file that can be read, and for an empty one."""
    try:
        if isinstance(path, Path) and not path.is_file():
            raise InputError(_("{path}: {problem}").format(path=path, problem=_what_is_there(path)))
        with _open(path) as file:
            start = file.peek(size)[:size] if isinstance(path, Stream) else file.read(size)
    except OSError as error:
        # A name that is too long, a folder that may not be entered
        raise InputError(
            _("{path}: cannot be read: {why}").format(path=shorten(str(path), 200), why=error.strerror)
        ) from error
    if not start:
        raise InputError(_("{path}: there are no rows, the file is empty").format(path=path))
    return start


def _what_is_there(path: Path) -> str:
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


def file_encoding(path: Source, encoding: str) -> str:
    """Return the encoding in which a file is read, of the setting `encoding`: that, but where it is UTF-8,
    UTF-16 or UTF-32 by the mark at the beginning of a file, and gb18030 where the file is not UTF-8 and is
    Chinese text in GB18030 to its last byte, as Excel writes it.

    A file with an invalid byte, or with lines in both, stays UTF-8, which reports them. A stream is not
    looked at. Raises nothing: a file that cannot be read is reported where it is read.
    """
    if encoding.lower() not in UTF_8 or isinstance(path, Stream):
        return encoding
    try:
        # Opening a pipe would wait for its writer
        if not path.is_file():
            return encoding
        with path.open("rb") as file:
            block = file.read(BLOCK)
            if marked := [name for name, marks in MARKS.items() if block.startswith(marks)]:
                return marked[0]
            for _block in range(MAX_ASCII):
                if not (block.isascii() and block):
                    break
                block = file.read(BLOCK)
            if _begins_as_utf8(block) or block.startswith(tuple(MAGIC)) or b"\0" in block:
                return encoding
            file.seek(0)
            return GB18030 if _is_gb18030(file) else encoding
    except OSError:
        return encoding


def _begins_as_utf8(block: bytes) -> bool:
    try:
        # The last character may be cut
        codecs.getincrementaldecoder("utf-8")().decode(block)
    except UnicodeDecodeError:
        return block.startswith(codecs.BOM_UTF8)
    return True


def _is_gb18030(lines: Iterable[bytes]) -> bool:
    """Return whether all lines are Chinese text in GB18030, and none is in UTF-8."""
    common, late = _common_characters()
    num_wide = num_common = num_late = num_counted = 0
    for line in lines:
        if line.isascii():
            continue
        try:
            text = line.decode(GB18030)
        except UnicodeDecodeError:
            return False
        with suppress(UnicodeDecodeError):
            # Characters of two bytes in UTF-8 are often GBK as well
            if max(line.decode()) >= "\u0800":
                return False
        num_counted += 1
        if num_counted <= COUNTED_LINES:
            num_wide += len(text) - len(text.encode("ascii", "ignore"))
            num_common += sum(map(common.__contains__, text))
            num_late += sum(map(late.__contains__, text))
    return num_late >= LATE_SHARE * num_common and num_common >= COMMON_SHARE * num_wide > 0


@cache
def _common_characters() -> tuple[frozenset[str], frozenset[str]]:
    """Return the symbols and the 3,755 common characters of GB 2312, and those of these from row 73 on: they
    are in the order of their sounds."""

    def characters(*rows: int) -> frozenset[str]:
        codes = (bytes((row, cell)) for row in rows for cell in range(0xA1, 0xFF))
        return frozenset("".join(code.decode("gb2312", "ignore") for code in codes))

    return characters(0xA1, 0xA2, 0xA3, *range(0xB0, 0xD8)), characters(*range(0xC9, 0xD8))


def _open(path: Source) -> Any:
    return nullcontext(path.file) if isinstance(path, Stream) else path.open("rb")


def read_lines(path: Source, encoding: str, span: Span | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a line, and this line and the next ones, of a stream one alone; with `span` those
    in it. Bytes that cannot be decoded become surrogates, which `check_characters` reports.

    Lines end at \\n only: other separators (U+2028, form feed) are part of the text. If the byte 0x0A is not
    a line feed, as in UTF-16, UTF-32 and EBCDIC, the file is decoded as a stream.
    """
    number, has_lf = span.line if span else 1, ends_lines_with_lf(encoding)
    try:
        with _open(path) as file:
            if has_lf:
                is_together = codec_name(encoding) in DECODED_TOGETHER and not isinstance(path, Stream)
                blocks = (_decoded(block, encoding) for block in _blocks(file, span, is_together))
            else:
                text = io.TextIOWrapper(file, encoding=encoding, errors="surrogatepass", newline="\n")
                blocks = ([line] for line in text)
            for lines in blocks:
                if number == 1:
                    lines[0] = lines[0].removeprefix("\ufeff")
                yield number, lines
                number += len(lines)
    except UnicodeDecodeError as error:
        where = f"{path}, " + (f"line {number}" if has_lf else f"from line {number} on")
        said = _("{where}: not valid {encoding} text ({why}); set --data.encoding")
        raise InputError(said.format(where=where, encoding=encoding, why=error.reason)) from error
    except OSError as error:
        raise InputError(f"{path}, line {number}: cannot be read: {error.strerror}") from error


def _blocks(file: BinaryIO, span: Span | None, is_together: bool) -> Iterator[bytes]:
    """Yield the lines of a file, one by one or as many as a block has."""
    if span:
        file.seek(span.start)
    left = span.end - span.start if span else sys.maxsize
    while left > 0:
        block = file.read(min(BLOCK, left)) if is_together else b""
        if not block.endswith(b"\n"):
            block += file.readline(left - len(block))
        if not block:
            return
        yield block
        left -= len(block)


def _decoded(block: bytes, encoding: str) -> list[str]:
    try:
        return list(io.StringIO(block.decode(encoding), newline="\n"))
    except UnicodeDecodeError:
        return [line.decode(encoding, errors="surrogateescape") for line in io.BytesIO(block)]


def ends_lines_with_lf(encoding: str) -> bool:
    """Return whether the byte 0x0A is a line feed, so that lines can be found without decoding."""
    return "\n".encode(encoding) == b"\n"


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
