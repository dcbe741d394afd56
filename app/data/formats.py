"""The format of a data file: by its setting, else by its content, else by its name."""

from __future__ import annotations

import codecs

from ..errors import InputError
from .excel import is_workbook
from .json_values import json_layout
from .text_files import Source, Stream, check_file, codec_name, read_start

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}
# Bytes from which the format is recognised
START = 1 << 20


def file_format(path: Source, format: str, encoding: str) -> str:
    """Return the format of `path`: as given, or by its content, or by the ending of its name."""
    if format != "auto":
        return format
    found = content_format(path, encoding) or named_format(path)
    if found is None:
        # A more useful error for a compressed file
        check_file(path, "auto", encoding)
        raise InputError(
            f"{path}: cannot tell the format from the file's name (known endings: {', '.join(SUFFIXES)}); "
            "set --data.format"
        )
    return found


def unlabelled_format(path: Source, encoding: str) -> str:
    """Return "text", one text a line, for a file named .txt whose content is plain text, else "auto"."""
    return "text" if path.suffix.lower() == ".txt" and content_format(path, encoding) is None else "auto"


def named_format(path: Source) -> str | None:
    """Return the format that the ending of a file's name stands for."""
    return SUFFIXES.get(path.suffix.lower())


def content_format(path: Source, encoding: str) -> str | None:
    """Return the format that the first bytes of a file show, whatever its name: Parquet, Excel, JSON, JSON
    Lines; else None.

    None also for a stream, of which no one knows how much has come. Raises InputError for a file that cannot
    be read.
    """
    codec = codec_name(encoding)
    if isinstance(path, Stream):
        return None
    start = read_start(path, START)
    if start.startswith(b"PAR1\x15"):
        return "parquet"
    if start.startswith(b"PK\x03\x04") and is_workbook(path):
        return "xlsx"
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    try:
        text = decoder.decode(start)
    except UnicodeError:
        # Some encodings cannot replace what they do not know
        return None
    return json_layout(text, len(start) < START, strict=named_format(path) not in ("json", "jsonl"))


def row_unit(format: str) -> str:
    """Return what a row's number counts in a file of this format: lines, elements of an array, or rows."""
    return {"json": "element", "parquet": "row", "xlsx": "row"}.get(format, "line")
