"""Data files: which ones a setting names, their encoding and their lines."""

from __future__ import annotations

import codecs
import glob
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..config.data_settings import check_address, is_address
from ..errors import InputError, cannot_read, excerpt, listed, nearest, shorten
from ..words import _
from .cache import build_once, content_key

# Files of gzip, bzip2, xz and Zstandard, workbooks, Parquet, and text in UTF-32 begin with these bytes.
MAGIC = (b"\x1f\x8b", b"BZh91AY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
MAGIC += (b"PAR1\x15", codecs.BOM_UTF32_LE)
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
GB18030 = "gb18030"
BLOCK = 1 << 20  # bytes that are read and decoded together
COUNTED = 1_000_000  # characters that are enough to recognise GB18030
# The common characters of GB 2312 are in the order of their sounds. Those from "shi" to "zuo" are 0.25 to
# 0.44 of all in public sets of Chinese texts, and few in Big5, Korean and Japanese that are read as GB18030.
LATE, LATE_SHARE = range(0xC9, 0xD8), 0.2


@dataclass(frozen=True)
class Stream:
    """An open binary file that can be read once, such as standard input; messages call it `name`."""

    name: str
    file: BinaryIO
    suffix = ""

    def __str__(self) -> str:
        return self.name


Source = Path | Stream


def files_of(value: str | list[str], cache_dir: str) -> list[str]:
    """Return the files of a setting: files, folders and patterns, sorted by name; of addresses such as
    s3://bucket/posts/ their copies in the cache. Of a folder, hidden files and folders are left out."""
    names: list[str] = []
    for entry in [value] if isinstance(value, str) else value:
        pattern, found = entry, [entry]
        if os.path.isdir(entry):
            pattern = os.path.join(glob.escape(entry), "[!._]*")
        if is_address(entry):
            found = local_copies(entry, cache_dir)
        elif glob.has_magic(pattern) and not os.path.isfile(entry):
            found = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        if not found:
            remedy = "write a pattern in quotes, such as 'a/*.csv', or 'a/**/*.csv' for files in its folders"
            raise InputError(f"{entry}: there are no files; {remedy}")
        names += found
    if not names or len(set(names)) < len(names):
        raise InputError(f"data files must be one or more, each named once, found {listed(names) or 'none'}")
    return names


def local_copies(address: str, cache_dir: str) -> list[str]:
    """Return local copies of the files at an address: a file, a folder or a pattern, made once for each
    content. fsspec finds the credentials; nothing of them is in a message or a file of ours."""
    import fsspec

    check_address("a data file", address)
    with _reading(address):
        system, path = fsspec.core.url_to_fs(address)
        system.invalidate_cache()
        is_web = address.startswith(("http://", "https://"))
        if not is_web and system.isdir(path):
            path = f"{path.rstrip('/')}/[!._]*"
        paths = system.glob(path) if glob.has_magic(path) and not is_web else [path]
        infos = {one: system.info(one) for one in sorted(paths)}
    copies = []
    for path, info in infos.items():
        if info["type"] == "file":
            # Size, time or ETag, whatever the store tells
            folder = Path(cache_dir) / f"remote-{content_key(system.unstrip_protocol(path), info)}"
            build_once(folder, _copy, system, path, num_bytes=0)
            copies.append(str(folder / Path(path).name))
    return copies


def _copy(folder: Path, system: Any, path: str) -> None:
    with _reading(system.unstrip_protocol(path)):
        system.get_file(path, str(folder / Path(path).name))


@contextmanager
def _reading(address: str) -> Iterator[None]:
    # Some texts of their errors hold the name of a key
    try:
        yield
    except Exception as error:  # noqa: BLE001 - each store raises different errors
        said = (
            f"{address}: cannot be read ({type(error).__name__}); check the address, the network, the "
            "credentials, and the package of the store (pip install -r requirements/remote.txt for s3, oss)"
        )
        raise InputError(said) from None


def read_start(path: Source, size: int) -> bytes:
    """Return up to `size` first bytes of a file; of a stream maybe fewer, which remain to be read."""
    try:
        if isinstance(path, Stream):
            start = path.file.peek(size)[:size]
        elif path.is_file():
            with path.open("rb") as file:
                start = file.read(size)
        else:
            problem = _(
                "a regular file is needed, found a folder, pipe or device; save its content to a file"
            )
            if not path.exists():
                hint = nearest(path.name, os.listdir(path.parent)) if path.parent.is_dir() else ""
                problem = _("there is no such file{hint}").format(hint=hint)
            raise InputError(_("{path}: {problem}").format(path=path, problem=problem))
    except OSError as error:
        # A name that is too long, a folder that may not be entered
        raise cannot_read(path, error) from error
    if not start:
        raise InputError(_("{path}: there are no rows, the file is empty").format(path=path))
    return start


def file_encoding(path: Source, encoding: str) -> str:
    """Return the encoding in which a file is read: that of its byte order mark, else the setting, but instead
    of UTF-8 gb18030 where it is Chinese text in GB18030 to its last byte, as Excel writes it. A file with
    lines in both stays UTF-8, which reports them. A stream is not looked at. Raises InputError for a file
    that cannot be read, for an encoding that Python does not know, and for utf-16 without a mark."""
    try:
        # Some codecs are not for text, or cannot continue after a bad byte
        "a".encode(encoding).decode(encoding, "surrogateescape")
        encoding = codecs.lookup(encoding).name
    except (LookupError, ValueError) as error:
        rule = "data.encoding must be a text encoding that Python knows"
        raise InputError(f"{rule}, found '{shorten(encoding)}'; try utf-8 or gb18030") from error
    start = b"" if isinstance(path, Stream) else read_start(path, max(map(len, MAGIC)))
    if start.startswith(MAGIC) or not start:
        return encoding
    if marked := next((name for mark, name in MARKS.items() if start.startswith(mark)), None):
        return marked
    if encoding in ("utf-16", "utf-32"):
        remedy = f"set --data.encoding to utf-8, {encoding}-le or {encoding}-be"
        raise InputError(f"{path}: {encoding} needs its byte order mark, found none; {remedy}")
    return GB18030 if encoding == "utf-8" and _is_gb18030(path) else encoding


def _is_gb18030(path: Path) -> bool:
    num_letters = num_late = 0
    with path.open("rb") as file:
        for line in file:
            if line.isascii():
                continue
            with suppress(UnicodeDecodeError):
                # Characters of two bytes in UTF-8 are often GBK as well
                if max(line.decode()) >= "\u0800":
                    return False
            try:
                text = line.decode(GB18030)
            except UnicodeDecodeError:
                return False
            if num_letters < COUNTED:
                letters = re.sub("[^\u3040-\ufeff]", "", text)
                num_letters += len(letters)
                num_late += sum(byte in LATE for byte in letters.encode("gb2312", "ignore")[::2])
    return num_late >= LATE_SHARE * num_letters > 0


def gb2312_characters() -> list[str]:
    """Return the 6,763 Chinese characters of GB 2312, in its order (rows 16 to 87)."""
    codes = (bytes((row, cell)) for row in range(0xB0, 0xF8) for cell in range(0xA1, 0xFF))
    return [character for code in codes if (character := code.decode("gb2312", "ignore"))]


def line_blocks(path: Source, encoding: str) -> Iterator[list[str]]:
    """Yield the lines of a file, in lists; LF, CR, or both end a line. Bytes that cannot be decoded become
    surrogates, which `wrong_character` reports."""
    number, block, rest = 1, b"?", ""
    # UTF-16 has no single bytes that could be kept
    errors = "surrogateescape" if "\n".encode(encoding) == b"\n" else "surrogatepass"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    try:
        with path.open("rb") if isinstance(path, Path) else nullcontext(path.file) as file:
            while block:
                block = file.read1(BLOCK)
                text = rest + decoder.decode(block, final=not block)
                lines = list(io.StringIO(text if number > 1 else text.removeprefix("\ufeff"), newline=""))
                # A line may go on in the next block, and LF may follow CR there
                rest = lines.pop() if block and lines and not lines[-1].endswith("\n") else ""
                yield lines
                number += len(lines)
    except UnicodeError as error:
        said = _("{path}, line {number} or later: not valid {encoding} text ({why}); set --data.encoding")
        said = said.format(path=path, number=number, encoding=encoding, why=getattr(error, "reason", error))
        raise InputError(said) from error


def wrong_character(text: str, what: str) -> str | None:
    """Return what is wrong with a text that has bytes that could not be decoded, or unpaired surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        found = f"unpaired surrogate U+{code:04X}"
        if 0xDC80 <= code <= 0xDCFF:
            found = _("invalid byte {byte}").format(byte=f"0x{code - 0xDC00:02x}")
        said = _(
            "{found} in the {what} {text}; set --data.encoding (gb18030 for most older Chinese files, big5 "
            "for traditional ones, utf-16-le) or fix the file"
        )
        return said.format(found=found, what=_(what), text=excerpt(text))
    return None
