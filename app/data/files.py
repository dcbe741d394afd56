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
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..config.data_settings import check_address, is_address
from ..config.schema import DataConfig
from ..errors import InputError, TrainingError, cannot_read, excerpt, listed, nearest, shorten
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
# utf-32 first: its mark begins with that of utf-16
MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-8": (codecs.BOM_UTF8,),
}
# Their lines mean the same alone and together, so that many are decoded at once
DECODED_TOGETHER = ("utf-8", "gb18030", "gbk")
UTF16_START = 1 << 16  # bytes that show UTF-16 without a mark
BLOCK = 1 << 20  # bytes that are read and decoded together
COUNTED_LINES = 20_000  # lines whose characters are counted to recognise GB18030
# The share of GB 2312's 3,755 common characters is 0.92 to 1 in public sets of Chinese texts, about 0.7 in
# traditional ones, 0.2 in Big5 that is read as GB18030.
COMMON_SHARE = 0.8
# Of the common ones, those from "shi" to "zuo" are 0.28 to 0.44 in public sets, none in Korean (EUC-KR).
LATE_SHARE = 0.15


# Of the files on a hub, and what their splits are here
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


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False


@dataclass(frozen=True)
class ReadOptions:
    """The settings that decide what the rows of a file are; `DataConfig` explains them and sets their
    defaults. They are part of a table's cache key."""

    format: str = DataConfig.format
    text_column: int | str | list[int | str] | None = DataConfig.text_column
    text_pair_column: int | str | None = DataConfig.text_pair_column
    label_column: int | str | None = DataConfig.label_column
    header: bool | None = DataConfig.header
    encoding: str = DataConfig.encoding
    quoting: str = DataConfig.quoting
    remove_spaces: bool = DataConfig.remove_spaces
    limit: int | None = DataConfig.limit
    task: str = DataConfig.task
    label_separator: str | None = DataConfig.label_separator
    label_columns: list[str] | None = DataConfig.label_columns
    label_hierarchy: str | None = DataConfig.label_hierarchy

    @classmethod
    def of(cls, config: DataConfig) -> ReadOptions:
        """Return those of a configuration."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})


def files_of(value: str | list[str], cache_dir: str) -> list[str]:
    """Return the files of a setting: a file, a folder, a pattern such as `posts/*.parquet`, or a list of
    these; of addresses such as s3://bucket/posts/ their copies in the cache. Those of a folder or a pattern
    are sorted by name; of a folder, hidden files and folders are left out."""
    names: list[str] = []
    for entry in [value] if isinstance(value, str) else value:
        names += local_copies(entry, cache_dir) if is_address(entry) else _files_at(entry, cache_dir)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"{listed(twice)}: a file may be named once only; take one of them out")
    if not names:
        raise InputError("a list of data files must name at least one, found none")
    return names


def _files_at(entry: str, cache_dir: str) -> list[str]:
    path = Path(entry)
    try:
        if entry and path.is_dir():
            if splits := splits_in(path, cache_dir):
                return [name for files in splits.values() for name in files]
            inside = [one for one in path.iterdir() if one.name[0] not in "._"]
            names = [str(one) for one in inside if one.is_file()] or _texts_by_label(inside, cache_dir)
        elif glob.has_magic(entry) and not path.exists():
            names = [name for name in glob.glob(entry, recursive=True) if Path(name).is_file()]
        else:
            return [entry]
    except OSError as error:
        raise cannot_read(entry, error) from error
    if not names:
        raise InputError(f"{entry}: there are no files; write a pattern in quotes, such as 'posts/*.parquet'")
    return sorted(names)


def splits_in(folder: Path, cache_dir: str) -> dict[str, list[str]]:
    """Return the Parquet files of each split in a folder of a hub, or of `save_to_disk`, whose files of Arrow
    become Parquet in the cache; none of another folder."""
    splits: dict[str, list[str]] = {}
    for path in sorted(
        path
        for pattern in ("*.parquet", "data/*.parquet", "data-*.arrow", "*/data-*.arrow")
        for path in folder.glob(pattern)
    ):
        name, is_arrow = path.name.partition("-")[0], path.suffix == ".arrow"
        if is_arrow:
            # A data set without splits is in the folder itself
            name = "train" if path.parent == folder else path.parent.name
        if name not in SPLITS or not (is_arrow or SPLIT_FILE.fullmatch(path.name)):
            continue
        if is_arrow:
            made = Path(cache_dir) / f"arrow-{content_key(str(path.resolve()), path.stat().st_mtime_ns)}"
            build_once(made, _write_parquet, path, num_bytes=path.stat().st_size)
            path = made / f"{path.stem}.parquet"
        splits.setdefault(SPLITS[name], []).append(str(path))
    return splits


def _write_parquet(folder: Path, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as file, pa.ipc.open_stream(file) as batches:
            parquet.write_table(batches.read_all(), folder / f"{path.stem}.parquet")
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path}: not a readable file of Arrow: {error}; save the data set again") from error


def _texts_by_label(folders: list[Path], cache_dir: str) -> list[str]:
    """Return a file with the plain texts in the folders of two or more labels, which is made once; none where
    there are other files."""
    inside = [file for folder in sorted(folders) for file in sorted(folder.iterdir())]
    files = [file for file in inside if file.name[0] not in "._"]
    are_texts = files and all(file.is_file() and file.suffix in ("", ".txt") for file in files)
    if len(folders) < 2 or not are_texts:
        return []
    made = Path(cache_dir) / f"texts-{content_key([(str(file), file.stat().st_mtime_ns) for file in files])}"
    build_once(made, _write_texts, files, num_bytes=sum(file.stat().st_size for file in files))
    return [str(made / "texts.jsonl")]


def _write_texts(made: Path, files: list[Path]) -> None:
    with (made / "texts.jsonl").open("w", encoding="utf-8") as target:
        # One text may be too short to tell
        is_gb = _is_gb18030(line for file in files for line in file.read_bytes().splitlines())
        for file in files:
            text = file.read_bytes().decode(GB18030 if is_gb else "utf-8-sig", errors="surrogateescape")
            target.write(json.dumps({"text": text, "label": file.parent.name, "file": str(file)}) + "\n")


def local_copies(address: str, cache_dir: str) -> list[str]:
    """Return local copies of the files at an address: a file, a folder or a pattern. A copy is made once for
    each content of a file. fsspec finds the credentials; nothing of them is in a message or a file of ours.
    Raises InputError where there is no file, TrainingError where one cannot be read."""
    # torch needs it too
    import fsspec

    check_address("a data file", address)
    scheme = address.partition("://")[0]
    with _reading(address):
        try:
            system, path = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError):
            raise InputError(
                f"{address}: files of {scheme}:// need a package; pip install -r requirements/remote.txt has "
                "those of s3:// and oss://"
            ) from None
        system.invalidate_cache()
        paths = [path]
        if scheme not in ("http", "https") and glob.has_magic(path):
            paths = [one for one in system.glob(path) if system.isfile(one)]
        elif scheme not in ("http", "https") and system.isdir(path):
            inside = [entry["name"] for entry in system.ls(path, detail=True) if entry["type"] == "file"]
            paths = [one for one in inside if one.rpartition("/")[2][:1] not in (".", "_", "")]
        infos = {one: system.info(one) for one in sorted(paths)}
    if not infos:
        raise InputError(f"{address}: there are no files")
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
    if packed := next((what for bytes_, what in MAGIC.items() if start.startswith(bytes_)), None):
        said = _("{path}: {needed} is needed, found {what}")
        raise InputError(said.format(path=path, needed=format if magic else "text", what=packed))
    if magic or codec.startswith(("utf-16-", "utf-32-")):
        return
    marked = next((name for name, marks in MARKS.items() if start.startswith(marks)), None)
    content = b"" if marked else read_start(path, UTF16_START)
    for unmarked in ("utf-16-le", "utf-16-be") if b"\0" in content else ():
        text = content[: len(content) // 2 * 2].decode(unmarked, "replace")
        if "\0" not in text and text.count("\n") > max(1, content.count(b"\n") // 2):
            raise InputError(
                f"{path}: {codec} text is needed, found {unmarked.upper()} text without a byte order mark; "
                f"set --data.encoding {unmarked}"
            )
    if marked and not codec.startswith((marked, "utf-16", "utf-32")):
        raise InputError(
            f"{path}: {codec} text is needed, found {marked.upper()} text with a byte order mark; set "
            f"--data.encoding {marked}"
        )
    if codec in ("utf-16", "utf-32") and not start.startswith(MARKS[codec]):
        raise InputError(
            f"{path}: {codec.upper()} text must begin with a byte order mark, found {start[:4]!r}; set "
            f"--data.encoding to utf-8, or to {codec}-le or {codec}-be, which need no mark"
        )


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
    if path.is_symlink():
        return f"there is no such file: it is a link to {shorten(os.readlink(path), 200)}, which is not there"
    if path.parent.is_dir():
        hint = nearest(path.name, os.listdir(path.parent))
    else:
        hint = _("; there is no folder {folder}").format(folder=path.parent)
    return _("there is no such file{hint}").format(hint=hint)


def codec_name(encoding: str) -> str:
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
    """Return the encoding in which a file is read: the setting, but instead of UTF-8 that of the mark at its
    beginning, and gb18030 where it is Chinese text in GB18030 to its last byte, as Excel writes it. A file
    with lines in both stays UTF-8, which reports them. A stream, or what cannot be read, is not looked at."""
    if encoding.lower() not in UTF_8 or isinstance(path, Stream):
        return encoding
    with suppress(OSError):
        # Opening a pipe would wait for its writer
        if not path.is_file():
            return encoding
        with path.open("rb") as file:
            block = file.read(BLOCK)
            if marked := next((name for name, marks in MARKS.items() if block.startswith(marks)), None):
                return encoding if marked in UTF_8 else marked
            while block and block.isascii():
                block = file.read(BLOCK)
            if block.startswith(tuple(MAGIC)) or b"\0" in block:
                return encoding
            try:
                # The last character of the block may be cut
                codecs.getincrementaldecoder("utf-8")().decode(block)
            except UnicodeDecodeError:
                file.seek(0)
                return GB18030 if _is_gb18030(file) else encoding
    return encoding


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
    # They are in the order of their sounds
    common, late = _characters(0xA1, 0xA2, 0xA3, *range(0xB0, 0xD8)), _characters(*range(0xC9, 0xD8))
    wide = [character for character in "".join(counted) if not character.isascii()]
    num_common, num_late = (sum(map(known.__contains__, wide)) for known in (common, late))
    return num_late >= LATE_SHARE * num_common and num_common >= COMMON_SHARE * len(wide) > 0


@cache
def _characters(*rows: int) -> frozenset[str]:
    """Return the characters in rows of GB 2312: from 0xA1 symbols, from 0xB0 the common Chinese ones."""
    codes = (bytes((row, cell)) for row in rows for cell in range(0xA1, 0xFF))
    return frozenset("".join(code.decode("gb2312", "ignore") for code in codes))


def read_lines(path: Source, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a line, and this line and the next ones, of a stream one alone. Lines end at \\n
    only: U+2028 and form feed are part of the text. Bytes that cannot be decoded become surrogates, which
    `check_characters` reports."""
    # Whether lines can be found without decoding
    number, has_lf = 1, "\n".encode(encoding) == b"\n"
    try:
        with path.open("rb") as file:
            if has_lf:
                is_together = codec_name(encoding) in DECODED_TOGETHER and not isinstance(path, Stream)
                blocks = _blocks(file, encoding, is_together)
            else:
                # UTF-16, UTF-32, EBCDIC
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
