"""Data files: which ones a setting names, their encoding, their lines, and the text of a cell."""

from __future__ import annotations

import ast
import codecs
import glob
import io
import json
import logging
import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ..config.schema import ADDRESS, check_address
from ..errors import InputError, excerpt, install_command, listed, nearest, readable, shorten
from ..words import N_, _
from .cache import build_once, content_key

logger = logging.getLogger(__name__)
# Packed files (gzip, bzip2, xz, Zstandard), workbooks, Parquet and UTF-32 begin so. They are refused, unless
# the `magic` of their format has these bytes.
MAGIC = (b"\x1f\x8b", b"BZh91AY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
MAGIC += (b"PAR1\x15", codecs.BOM_UTF32_LE)
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
START, BLOCK_ROWS = 1 << 20, 2048  # bytes, and lines or rows, that are read together
COUNTED = 1_000_000  # characters that are enough to recognise GB18030
# The common characters of GB 2312 are in the order of their sounds. Those from "shi" to "zuo" are 0.25 to
# 0.44 of all in public sets of Chinese texts, and few in Big5, Korean and Japanese that are read as GB18030.
LATE, LATE_SHARE = range(0xC9, 0xD8), 0.2
# Unicode categories: control and format characters, separators
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}
SETTING = {N_("text"): "text_column", N_("second text"): "text_pair_column", N_("label"): "label_column"}


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
    s3://bucket/posts/ their copies in the cache. Of a folder, hidden files and folders are left out.

    A file that a pattern finds under several names, which links give it, is there once. Raises InputError
    where there is no file, and for a file that is named twice.
    """
    entries = [value] if isinstance(value, str) else value
    names: list[str] = []
    for entry in entries:
        names += files_of_entry(entry, cache_dir)
    if not names:
        raise InputError("data files must be one or more, each named once, found none")
    name_of_file: dict[object, str] = {}
    for name in names:
        identity = file_identity(name)
        if identity in name_of_file:
            found = f"{name_of_file[identity]} and {name}, which are one file"
            raise InputError(f"data files must be one or more, each named once, found {found}; remove one")
        name_of_file[identity] = name
    return names


def files_of_entry(entry: str, cache_dir: str) -> list[str]:
    """Return the files of one file, folder, pattern or address; raises InputError for a pattern of none."""
    if ADDRESS.match(entry):
        files = local_copies(entry, cache_dir)
    elif os.path.isdir(entry):
        files = each_once(matching_files(os.path.join(glob.escape(entry), "[!._]*")))
    elif glob.has_magic(entry) and not os.path.isfile(entry):
        files = each_once(matching_files(entry))
    else:
        files = [entry]
    if not files:
        remedy = "write a pattern in quotes, such as 'a/*.csv', or 'a/**/*.csv' for files in its folders"
        raise InputError(f"{entry}: there are no files; {remedy}")
    return files


def matching_files(pattern: str) -> list[str]:
    """Return the files of a pattern, in which `**` is any number of folders, none of them hidden.

    `glob.glob` with `recursive` is not used: it follows a link to a folder above the link again and again.
    """
    parts = pattern.replace(os.altsep or os.sep, os.sep).split(os.sep)
    if "**" not in parts:
        return [name for name in glob.glob(pattern) if os.path.isfile(name)]
    position = parts.index("**")
    before = os.sep.join(parts[:position])
    after = os.sep.join(parts[position + 1 :])
    root = os.sep if position else ""
    starts = glob.glob(before) if before else [root]
    files: list[str] = []
    for folder in folders_below(starts):
        files += matching_files(os.path.join(glob.escape(folder), after or "*"))
    return files


def folders_below(starts: list[str]) -> list[str]:
    """Return folders and all folders in them that are not hidden, each once. A link to a folder is followed
    only where no other way leads there."""
    folders: list[str] = []
    links = sorted(starts)
    left_out: list[str] = []
    entered: set[str] = set()
    while links:
        waiting = [links.pop(0)]
        while waiting:
            folder = waiting.pop()
            real_path = os.path.realpath(folder)
            if real_path in entered:
                left_out.append(folder)
                continue
            entered.add(real_path)
            folders.append(folder)
            # A folder that may not be entered has no files for us
            names: list[str] = []
            with suppress(OSError):
                names = sorted(os.listdir(folder or "."))
            for name in names:
                path = os.path.join(folder, name)
                if name.startswith(".") or not os.path.isdir(path):
                    continue
                if os.path.islink(path):
                    links.append(path)
                else:
                    waiting.append(path)
    if left_out:
        logger.warning("Links to folders that are read under another name are left out: %s", listed(left_out))
    return folders


def each_once(names: list[str]) -> list[str]:
    """Return the names of different files, sorted; of several names of a file one without links."""
    by_file: dict[object, str] = {}
    for name in sorted(names, key=lambda name: (has_link(name), name)):
        by_file.setdefault(file_identity(name), name)
    kept = sorted(by_file.values())
    left_out = sorted(set(names) - set(kept))
    if left_out:
        logger.warning("Other names of files that are read already are left out: %s", listed(left_out))
    return kept


def has_link(name: str) -> bool:
    return os.path.realpath(name) != os.path.abspath(name)


def file_identity(name: str) -> object:
    """Return what is the same for two names of one file; of a file that is not there its path."""
    try:
        status = os.stat(name)
    except (OSError, ValueError):
        return os.path.abspath(name)
    # A file system without numbers of files gives 0
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(name)


def local_copies(address: str, cache_dir: str) -> list[str]:
    """Return local copies of the files at an address: a file, a folder or a pattern, made once for each
    content. fsspec finds the credentials; nothing of them is in a message or a file of ours."""
    import fsspec

    @contextmanager
    def reading() -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each store raises different errors
            # Some of their texts hold the name of a key
            install = install_command("remote", constrained=False)
            remedy = f"check address, network and credentials, and {install}"
            raise InputError(f"{address}: cannot be read ({type(error).__name__}); {remedy}") from None

    def copy(folder: Path, path: str) -> None:
        with reading():
            system.get_file(path, str(folder / Path(path).name))

    check_address("a data file", address)
    with reading():
        system, path = fsspec.core.url_to_fs(address)
        system.invalidate_cache()
        is_web = address.startswith(("http://", "https://"))
        if not is_web and system.isdir(path):
            path = f"{path.rstrip('/')}/[!._]*"
        paths = system.glob(path) if glob.has_magic(path) and not is_web else [path]
        infos = {one: info for one in sorted(paths) if (info := system.info(one))["type"] == "file"}
    copies = []
    for path, info in infos.items():
        # `info` has a size, time or ETag: what the store tells of the file
        folder = Path(cache_dir) / f"remote-{content_key(system.unstrip_protocol(path), info)}"
        build_once(folder, copy, path, num_bytes=0)
        copies.append(str(folder / Path(path).name))
    return copies


def read_start(path: Source) -> bytes:
    """Return the first bytes of a file, up to `START`; those of a stream remain to be read."""
    # This also fails for a name that is too long, or a folder that may not be entered
    with readable(path):
        if isinstance(path, Stream):
            start = path.file.peek(START)
        elif path.is_file():
            with path.open("rb") as file:
                start = file.read(START)
        else:
            problem = _("a regular file is needed, found a folder or pipe; save its content to a file")
            if not path.exists():
                hint = nearest(path.name, os.listdir(path.parent)) if path.parent.is_dir() else ""
                problem = _("there is no such file{hint}").format(hint=hint)
            raise InputError(_("{path}: {problem}").format(path=path, problem=problem))
    if not start:
        raise InputError(_("{path}: there are no rows, the file is empty").format(path=path))
    return start


def file_encoding(path: Source, encoding: str) -> str:
    """Return the encoding of a file: that of its byte order mark, else the setting, but instead of UTF-8
    gb18030 where it is Chinese text in GB18030 to its last byte, as Excel writes it. A file with lines in
    both stays UTF-8, which reports them. A stream is not looked at. Raises InputError for a file that cannot
    be read, an encoding that Python does not know, and utf-16 without a mark."""
    try:
        # Some codecs are not for text, or cannot continue after a bad byte
        "a".encode(encoding).decode(encoding, "surrogateescape")
        encoding = codecs.lookup(encoding).name
    except (LookupError, ValueError) as error:
        rule = "data.encoding must be a text encoding that Python knows"
        raise InputError(f"{rule}, found '{shorten(encoding)}'; try utf-8 or gb18030") from error
    start = read_start(path)
    if isinstance(path, Stream) or start.startswith(MAGIC):
        return encoding
    if marked := next((name for mark, name in MARKS.items() if start.startswith(mark)), None):
        return marked
    if encoding in ("utf-16", "utf-32"):
        remedy = f"set --data.encoding to utf-8, {encoding}-le or {encoding}-be"
        raise InputError(f"{path}: {encoding} needs its byte order mark, found none; {remedy}")
    return "gb18030" if encoding == "utf-8" and _is_gb18030(path) else encoding


def _is_gb18030(path: Path) -> bool:
    letters = ""
    with path.open("rb") as file:
        for line in file:
            if line.isascii():
                continue
            with suppress(UnicodeDecodeError):
                # Characters of two bytes in UTF-8 are often GBK as well
                if max(line.decode()) >= "\u0800":
                    return False
            try:
                text = line.decode("gb18030")
            except UnicodeDecodeError:
                return False
            if len(letters) < COUNTED:
                letters += re.sub("[^\u3040-\ufeff]", "", text)
    num_late = sum(byte in LATE for byte in letters.encode("gb2312", "ignore")[::2])
    return num_late >= LATE_SHARE * len(letters) > 0


def line_blocks(path: Source, encoding: str) -> Iterator[list[str]]:
    """Yield the lines of a file, in lists; LF, CR, or both end a line. Bytes that cannot be decoded become
    surrogates, which `wrong_character` reports."""
    # UTF-16 has no single bytes that could be kept
    errors, number = "surrogateescape" if "\n".encode(encoding) == b"\n" else "surrogatepass", 1
    # utf-8-sig leaves out a byte order mark
    codec = "utf-8-sig" if encoding == "utf-8" else encoding
    try:
        with path.open("rb", START) if isinstance(path, Path) else nullcontext(path.file) as file:
            text = io.TextIOWrapper(file, codec, errors, newline="")
            while lines := list(islice(text, BLOCK_ROWS)):
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
            "{found} in the {what} {text}; fix the file or set --data.encoding (gb18030, big5, utf-16-le)"
        )
        return said.format(found=found, what=_(what), text=excerpt(text))
    return None


class EmptyText(ValueError):
    """A row without a text."""


def clean_text(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem."""
    if not isinstance(value, (str, type(None))):
        said = _("the {what} must be a string, found {value}; fix the row or set --data.{setting}")
        raise ValueError(said.format(what=_(what), value=excerpt(value), setting=SETTING[what]))
    text = ("".join(value.split()) if remove_spaces else value.strip()) if value else ""
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        said = _("the {what} is empty, found {value}; fill it in or remove the row")
        problem = said.format(what=_(what), value=excerpt(value))
        # An empty label is a wrong label
        raise ValueError(problem) if what == "label" else EmptyText(problem)
    if wrong := wrong_character(text, what):
        raise ValueError(wrong)
    return text


def value_of(cell: Any) -> Any:
    """Return the list or object that is written into a cell of a table, as JSON or as Python writes it, else
    the cell. Of an object with nothing but `choices`, as Label Studio writes several, these."""
    value, text = cell, cell.strip() if isinstance(cell, str) else ""
    if text.startswith(("[", "{")):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            # NumPy writes no commas
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                value = ast.literal_eval(re.sub(r"(['\"])\s+(?=['\"])", r"\1, ", text))
    return value["choices"] if isinstance(value, dict) and list(value) == ["choices"] else value
