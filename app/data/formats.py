"""The format of a data file: by its setting, else by its content, else by its name; and its reader."""

import codecs
import csv
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ..config import file_formats
from ..config.file_formats import FORMATS, SUFFIXES
from ..errors import InputError, excerpt
from ..words import _
from .readers import BadRow, FileStart, Reader, ReadOptions
from .readers.delimited import num_fields
from .text_files import Source, Stream, check_file, codec_name, read_start

# Bytes from which the format is recognised
START = 1 << 20
# By which the separator is recognised
SEEN_LINES = 500


def file_format(path: Source, format: str, encoding: str) -> str:
    """Return the format of `path`: as given, or by its content, or by the ending of its name; of a table,
    by the separator that gives all of its first lines the same number of fields."""
    if format != "auto":
        return format
    by_content = content_format(path, encoding) or separated_format(path, encoding)
    recognised = by_content or SUFFIXES.get(path.suffix.lower())
    if recognised is None:
        # A more useful error for a compressed file
        check_file(path, "auto", encoding)
        raise InputError(
            _(
                "{path}: cannot tell the format from the file's name (known endings: {endings}); set "
                "--data.format"
            ).format(path=path, endings=", ".join(SUFFIXES))
        )
    return recognised


def unlabelled_format(path: Source, encoding: str) -> str:
    """Return "text", one text a line, for a file named .txt whose content is plain text, else "auto"."""
    return "text" if path.suffix.lower() == ".txt" and content_format(path, encoding) is None else "auto"


def content_format(path: Source, encoding: str) -> str | None:
    """Return the format that the first bytes of a file show, whatever its name; None where they show none.
    None also for a stream, which is not waited for. Raises InputError for a file that cannot be read."""
    codec = codec_name(encoding)
    if isinstance(path, Stream):
        return None
    content, text = _start_of(path, codec)
    start = FileStart(path, content, text, len(content) < START)
    return next((name for name in FORMATS if reader_class(name).recognises(start)), None)


def separated_format(path: Source, encoding: str) -> str | None:
    """Return the format of a table whose separator is not that of its name, else None: that of the name gives
    no columns, and the other one the same number in each of the first lines."""
    named = SUFFIXES.get(path.suffix.lower())
    if named is None or not FORMATS[named].is_delimited or isinstance(path, Stream):
        return None
    content, text = _start_of(path, codec_name(encoding))
    lines = (text or "").splitlines()
    # The last one may be cut
    lines = [line for line in (lines if len(content) < START else lines[:-1])[:SEEN_LINES] if line.strip()]
    others = [name for name, format in FORMATS.items() if format.is_delimited and name != named]
    try:
        # One column, or lines that differ
        if len(lines) < 2 or num_fields(reader_class(named), lines) > 1:
            return None
        return next((name for name in others if num_fields(reader_class(name), lines) > 1), None)
    except csv.Error:
        return None


def _start_of(path: Path, codec: str) -> tuple[bytes, str | None]:
    """Return the first bytes of a file, and the same decoded."""
    content = read_start(path, START)
    try:
        return content, codecs.getincrementaldecoder(codec)(errors="replace").decode(content)
    except UnicodeError:
        # Some encodings cannot replace what they do not know
        return content, None


def reader_class(format: str) -> type[Reader]:
    """Return the class that reads a format."""
    module, name = FORMATS[format].reader.split(":")
    return getattr(import_module(module, file_formats.__package__), name)


def open_reader(path: Source, options: ReadOptions, format: str) -> Reader:
    """Return the reader of a file, after checks of the file; raises InputError for a file of another format,
    and where the library that reads it is missing."""
    check_file(path, format, options.encoding)
    library = FORMATS[format].library
    if library and find_spec(library) is None:
        raise InputError(f"{path}: {format} files need {library}; install it with: pip install {library}")
    return reader_class(format)(path, options)


def named_rows(
    path: Path, options: ReadOptions, format: str, check_names: Callable[[str, list[str]], None]
) -> Iterator[tuple[int, dict]]:
    """Yield number and values by column name of each row of a file of objects, or with a header, whose place
    and names `check_names` gets. Raises InputError, with the place, for what is no row."""
    names: list[str] | None = None
    for number, record in open_reader(path, options, format).records():
        where = f"{path}, {FORMATS[format].row_unit} {number}"
        if isinstance(record, BadRow):
            raise InputError(f"{where}: {record.problem}")
        if isinstance(record, list) and names is None:
            names = [str(value).strip() for value in record]
            check_names(where, names)
            continue
        if not isinstance(record, (list, dict)) or (isinstance(record, list) and len(record) != len(names)):
            needed = f"a row of {len(names)} columns as in the header" if names else "an object"
            raise InputError(f"{where}: {needed} is needed, found {excerpt(record)}; correct the row")
        yield number, record if isinstance(record, dict) else dict(zip(names, record, strict=True))
