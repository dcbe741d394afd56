"""Data files: which ones a setting names, how they begin, their encoding and their lines."""

from __future__ import annotations

import codecs
import glob
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..config.data_settings import check_address, is_address
from ..errors import InputError, TrainingError, cannot_read, excerpt, listed, nearest, shorten
from ..words import _
from .cache import build_once, content_key
from .file_formats import FORMATS

MAGIC = {
    b"\x1f\x8b": "a gzip file",
    b"BZh91AY": "a bzip2 file",
    b"\xfd7zXZ\x00": "an xz file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"PK\x03\x04": "a ZIP or Excel file",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file, or one with a password",
    b"PAR1\x15": "a Parquet file",
}
UTF_8, GB18030 = ("utf-8", "utf8"), "gb18030"
# utf-32 first: its mark begins with that of utf-16
MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-8": (codecs.BOM_UTF8,),
}
# Their lines mean the same alone and together, so that many are decoded at once
DECODED_TOGETHER = ("utf-8", "gb18030", "gbk")
BLOCK = 1 << 20  # bytes that are read and decoded together
COUNTED_LINES = 20_000  # lines whose characters are counted to recognise GB18030
# The common characters of GB 2312 are in the order of their sounds. Those from "shi" to "zuo" are 0.25 to
# 0.44 of all in public sets of Chinese texts, and few in Big5, Korean and Japanese that are read as GB18030.
LATE_SHARE = 0.2
# The files of a hub, and what their splits are here
SPLIT_FILE = re.compile(r"(train|validation|valid|dev|test)-\d+-of-\d+\.parquet")
SPLITS = {"train": "train", "validation": "dev", "valid": "dev", "dev": "dev", "test": "test"}


@dataclass(frozen=True)
class Stream:
    """An open binary file that can be read once, such as standard input; messages call it `name`."""

    name: str
    file: BinaryIO
    suffix = ""

    def __str__(self) -> str:
        return self.name

    def open(self, _mode: str) -> Any:
        """Return the open file, as a path does; it stays open."""
        return nullcontext(self.file)


Source = Path | Stream


def files_of(value: str | list[str], cache_dir: str) -> list[str]:
    """Return the files of a setting: files, folders and patterns, sorted by name; of addresses such as
    s3://bucket/posts/ their copies in the cache. Of a folder, hidden files and folders are left out."""
    names: list[str] = []
    for entry in [value] if isinstance(value, str) else value:
        found = local_copies(entry, cache_dir) if is_address(entry) else _files_at(entry, cache_dir)
        if not found:
            raise InputError(f"{entry}: there are no files; write a pattern in quotes, such as 'a/*.csv'")
        names += found
    if not names or len(set(names)) < len(names):
        raise InputError(f"data files must be one or more, each named once, found {listed(names) or 'none'}")
    return names


def _files_at(entry: str, cache_dir: str) -> list[str]:
    path = Path(entry)
    try:
        if not (entry and path.is_dir()):
            is_pattern = glob.has_magic(entry) and not path.exists()
            return sorted(filter(os.path.isfile, glob.glob(entry, recursive=True))) if is_pattern else [entry]
        if splits := splits_in(path):
            return [name for files in splits.values() for name in files]
        inside = [one for one in path.iterdir() if one.name[0] not in "._"]
        return sorted(str(one) for one in inside if one.is_file()) or _texts_by_label(inside, cache_dir)
    except OSError as error:
        raise cannot_read(entry, error) from error


def splits_in(folder: Path) -> dict[str, list[str]]:
    """Return the files of each split in a folder of a hub, Parquet, or of `save_to_disk`, Arrow; none of
    another folder."""
    splits: dict[str, list[str]] = {}
    patterns = ("*.parquet", "data/*.parquet", "data-*.arrow", "*/data-*.arrow")
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        name = path.name.partition("-")[0] if SPLIT_FILE.fullmatch(path.name) else ""
        if path.suffix == ".arrow":
            # A data set without splits is in the folder itself
            name = "train" if path.parent == folder else path.parent.name
        if name in SPLITS:
            splits.setdefault(SPLITS[name], []).append(str(path))
    return splits


def _texts_by_label(folders: list[Path], cache_dir: str) -> list[str]:
    """Return a file with the plain texts in the folders of two or more labels, which is made once; none where
    there are other files."""
    inside = [file for folder in sorted(folders) for file in sorted(folder.iterdir())]
    files = [file for file in inside if file.name[0] not in "._"]
    are_texts = files and all(one.is_file() and one.suffix in ("", ".txt") for one in files)
    if len(folders) < 2 or not are_texts:
        return []
    made = Path(cache_dir) / f"texts-{content_key([(str(file), file.stat().st_mtime_ns) for file in files])}"
    build_once(made, _write_texts, files, num_bytes=sum(file.stat().st_size for file in files))
    return [str(made / "texts.jsonl")]


def _write_texts(made: Path, files: list[Path]) -> None:
    # One text may be too short to tell
    is_gb = _is_gb18030(line for file in files for line in file.read_bytes().splitlines())
    with (made / "texts.jsonl").open("w", encoding="utf-8") as target:
        for file in files:
            text = file.read_bytes().decode(GB18030 if is_gb else "utf-8-sig", errors="surrogateescape")
            target.write(json.dumps({"text": text, "label": file.parent.name, "file": str(file)}) + "\n")


def local_copies(address: str, cache_dir: str) -> list[str]:
    """Return local copies of the files at an address: a file, a folder or a pattern, made once for each
    content. fsspec finds the credentials; nothing of them is in a message or a file of ours."""
    import fsspec

    check_address("a data file", address)
    with _reading(address):
        system, path = fsspec.core.url_to_fs(address)
        system.invalidate_cache()
        paths, is_web = [path], address.startswith(("http://", "https://"))
        if glob.has_magic(path) and not is_web:
            paths = [one for one in system.glob(path) if system.isfile(one)]
        elif not is_web and system.isdir(path):
            inside = [entry["name"] for entry in system.ls(path, detail=True) if entry["type"] == "file"]
            paths = [one for one in inside if one.rpartition("/")[2][:1] not in (".", "_", "")]
        infos = {one: system.info(one) for one in sorted(paths)}
    copies = []
    for path, info in infos.items():
        # Size, time or ETag, whatever the store tells
        folder = Path(cache_dir) / f"remote-{content_key(system.unstrip_protocol(path), info)}"
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
    except (ImportError, ValueError):
        said = f"{address}: such files need a package; pip install -r requirements/remote.txt for s3, oss"
        raise InputError(said) from None
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{address}: there is no such file, or it may not be seen; correct it") from None
    except Exception as error:  # noqa: BLE001 - each store raises different errors
        said = "check the address, the network, and the credentials in the environment, and start again"
        raise TrainingError(f"{address}: cannot be read ({type(error).__name__}); {said}") from None


def check_file(path: Source, format: str | None, encoding: str) -> None:
    """Raise InputError where `path` begins as a file of another kind does, or lacks its byte order mark."""
    codec, magic = codec_name(encoding), FORMATS[format].magic if format else ()
    if isinstance(path, Stream) and magic:
        raise InputError(f"{path}: {format} files cannot be read from a stream; save it to a file first")
    start = read_start(path, max(map(len, MAGIC)))
    found = next((what for bytes_, what in MAGIC.items() if start.startswith(bytes_)), None)
    if found and not start.startswith(magic or b"no"):
        said = _("{path}: {needed} is needed, found {what}; unpack it, save it as CSV, or set --data.format")
        raise InputError(said.format(path=path, needed=format if magic else "text", what=found))
    marked = None if magic else _mark_of(start)
    lacks_mark = not magic and codec in ("utf-16", "utf-32") and not start.startswith(MARKS[codec])
    # The mark of UTF-32 may also be the mark of UTF-16 before a NUL
    if lacks_mark or (marked and not codec.startswith((marked, "utf-16", "utf-32"))):
        remedy = f"set --data.encoding to {marked or f'utf-8, {codec}-le or {codec}-be'}"
        raise InputError(f"{path}: {codec} needs its byte order mark, found {marked or 'none'}; {remedy}")


def _mark_of(start: bytes) -> str | None:
    return next((name for name, marks in MARKS.items() if start.startswith(marks)), None)


def read_start(path: Source, size: int) -> bytes:
    """Return up to `size` first bytes of a file; of a stream maybe fewer, which remain to be read."""
    try:
        if isinstance(path, Path) and not path.is_file():
            raise InputError(_("{path}: {problem}").format(path=path, problem=_what_is_there(path)))
        with path.open("rb") as file:
            start = file.peek(size)[:size] if isinstance(path, Stream) else file.read(size)
    except OSError as error:
        # A name that is too long, a folder that may not be entered
        raise cannot_read(path, error) from error
    if not start:
        raise InputError(_("{path}: there are no rows, the file is empty").format(path=path))
    return start


def _what_is_there(path: Path) -> str:
    if path.is_dir():
        names = listed(sorted(os.listdir(path)), 8) or "(it is empty)"
        return _("a file is needed, found a directory; name one of its files: {names}").format(names=names)
    if path.exists():
        return "a regular file is needed, found a pipe or a device; save its content to a file first"
    hint = _("; there is no folder {folder}").format(folder=path.parent)
    if path.parent.is_dir():
        hint = nearest(path.name, os.listdir(path.parent))
    return _("there is no such file{hint}").format(hint=hint)


def codec_name(encoding: str) -> str:
    try:
        "".encode(encoding)
        name = codecs.lookup(encoding).name
        # They cannot continue after a bad byte
        if name not in ("idna", "punycode"):
            return name
    except (LookupError, UnicodeError, ValueError):
        # ValueError: a NUL in the name
        pass
    rule = "data.encoding must be a text encoding that Python knows"
    raise InputError(f"{rule}, found '{shorten(encoding)}'; try utf-8 or gb18030")


def file_encoding(path: Source, encoding: str) -> str:
    """Return the encoding in which a file is read: the setting, but instead of UTF-8 that of its byte order
    mark, and gb18030 where it is Chinese text in GB18030 to its last byte, as Excel writes it. A file with
    lines in both stays UTF-8, which reports them. A stream, or what cannot be read, is not looked at."""
    if encoding.lower() not in UTF_8 or isinstance(path, Stream):
        return encoding
    with suppress(OSError):
        # Opening a pipe would wait for its writer
        if path.is_file():
            with path.open("rb") as file:
                return _seen_encoding(file) or encoding
    return encoding


def _seen_encoding(file: BinaryIO) -> str | None:
    block = file.read(BLOCK)
    if (marked := _mark_of(block)) or block.startswith(tuple(MAGIC)):
        return None if marked in UTF_8 else marked
    for unmarked in ("utf-16-le", "utf-16-be") if b"\0" in block else ():
        text = block[: len(block) // 2 * 2].decode(unmarked, "replace")
        if text.count("\n") > max(1, block.count(b"\n") // 2):
            return unmarked
    while block and block.isascii():
        block = file.read(BLOCK)
    try:
        # The last character of the block may be cut
        codecs.getincrementaldecoder("utf-8")().decode(block)
    except UnicodeDecodeError:
        file.seek(0)
        return GB18030 if _is_gb18030(file) else None
    return None


def _is_gb18030(lines: Iterable[bytes]) -> bool:
    counted: list[str] = []
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
        if len(counted) < COUNTED_LINES:
            counted.append(text)
    letters = [character for character in "".join(counted) if "\u3040" <= character < "\uff00"]
    late = frozenset(gb2312_characters(range(0xC9, 0xD8)))
    return sum(map(late.__contains__, letters)) >= LATE_SHARE * len(letters) > 0


def gb2312_characters(rows: range = range(0xB0, 0xF8)) -> list[str]:
    """Return the 6,763 Chinese characters of GB 2312, in its order (rows 16 to 87), or those of some rows."""
    codes = (bytes((row, cell)) for row in rows for cell in range(0xA1, 0xFF))
    return [character for code in codes if (character := code.decode("gb2312", "ignore"))]


def read_lines(path: Source, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a line, and this line and the next ones, of a stream one alone; LF ends a line.
    Bytes that cannot be decoded become surrogates, which `check_characters` reports."""
    # Whether lines can be found without decoding, which is not so in UTF-16, UTF-32 and EBCDIC
    number, has_lf = 1, "\n".encode(encoding) == b"\n"
    try:
        with path.open("rb") as file:
            if has_lf:
                is_together = codec_name(encoding) in DECODED_TOGETHER and not isinstance(path, Stream)
                blocks = _blocks(file, encoding, is_together)
            else:
                text = io.TextIOWrapper(file, encoding=encoding, errors="surrogatepass", newline="\n")
                blocks = ([line] for line in text)
            for lines in blocks:
                if number == 1:
                    lines[0] = lines[0].removeprefix("\ufeff")
                yield number, lines
                number += len(lines)
    except UnicodeDecodeError as error:
        said = _("{path}, line {number}: not valid {encoding} text ({why}); set --data.encoding")
        said = said.format(path=path, number=number, encoding=encoding, why=error.reason)
        raise InputError(said) from error
    except OSError as error:
        raise InputError(f"{path}, line {number}: cannot be read: {error.strerror}") from error


def _blocks(file: BinaryIO, encoding: str, is_together: bool) -> Iterator[list[str]]:
    while True:
        block = file.read(BLOCK) if is_together else b""
        if not block.endswith(b"\n"):
            block += file.readline()
        if not block:
            return
        try:
            lines = list(io.StringIO(block.decode(encoding), newline="\n"))
        except UnicodeDecodeError:
            lines = [line.decode(encoding, errors="surrogateescape") for line in io.BytesIO(block)]
        yield lines


def check_characters(text: str, what: str) -> None:
    """Raise ValueError for bytes that could not be decoded and for unpaired surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        found = _("invalid byte {byte}").format(byte=f"0x{code - 0xDC00:02x}")
        if not 0xDC80 <= code <= 0xDCFF:
            found = f"unpaired surrogate U+{code:04X}"
        said = _(
            "{found} in the {what} {text}; set --data.encoding (gb18030 for most older Chinese files, big5 "
            "for traditional ones, utf-16-le) or fix the file"
        )
        raise ValueError(said.format(found=found, what=_(what), text=excerpt(text))) from error
