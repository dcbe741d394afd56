"""The formats of data files: how they are recognised, and their records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from ..config.schema import DataConfig
from ..errors import InputError
from .column_files import ArrowBlock, arrow_batches, arrow_blocks, parquet_batches
from .encodings import (
    ARROW_FILE,
    ARROW_STREAM,
    BLOCK_ROWS,
    CHINESE_ENCODINGS,
    MAGIC,
    OLD_WORKBOOK,
    PARQUET_FILE,
    ZIP_FILE,
    Source,
    Stream,
    file_encoding,
    known_encoding,
    line_blocks,
    read_start,
)
from .excel_files import choose_sheet, excel_records
from .json_files import JSON_ERRORS, JSON_START, json_array_records, json_line_records
from .separators import (
    are_enclosed,
    are_quoted_after_spaces,
    excel_separator,
    num_fields,
    shown_separator,
)
from .text_files import (
    LABEL_PREFIX,
    Block,
    fasttext_records,
    plain_blocks,
    quoted_blocks,
    without_separator_line,
)

FIRST_LINES = 500  # lines that show the format of a file


class FileFormat(NamedTuple):
    """`suffixes`: endings of names that stand for it. `unit`: what the number of a row counts.
    `delimiter` is between two fields of a line, `is_quoted`: double quotes may enclose them. `has_header`:
    the first row may have the names of the columns. `magic`: the bytes with which a file begins that is no
    text; it has no encoding, and cannot be a stream. `batches`: a function that yields the record batches of
    a file that keeps columns with their names and types. `has_number_cells`: a text that looks like a number
    is stored as one."""

    suffixes: tuple[str, ...] = ()
    unit: str = "line"
    delimiter: str = ""
    is_quoted: bool = False
    has_header: bool = False
    magic: tuple[bytes, ...] = ()
    batches: Callable[[Path], Iterator[Any]] | None = None
    has_number_cells: bool = False


# The keys are values of data.format
FORMATS = {
    "csv": FileFormat((".csv",), delimiter=",", is_quoted=True, has_header=True),
    "tsv": FileFormat((".tsv", ".txt", ".tab"), delimiter="\t", has_header=True),
    "semicolon": FileFormat(delimiter=";", is_quoted=True, has_header=True),
    "pipe": FileFormat(delimiter="|", has_header=True),
    "json": FileFormat((".json",), "element"),
    "jsonl": FileFormat((".jsonl", ".ndjson")),
    "parquet": FileFormat((".parquet", ".pq"), "row", magic=(PARQUET_FILE,), batches=parquet_batches),
    "arrow": FileFormat(
        (".arrow", ".feather"),
        "row",
        magic=(ARROW_FILE, ARROW_STREAM),
        batches=arrow_batches,
    ),
    "xlsx": FileFormat(
        (".xlsx", ".xlsm", ".xls", ".ods"),
        "row",
        has_header=True,
        magic=(ZIP_FILE, OLD_WORKBOOK),
        has_number_cells=True,
    ),
    "fasttext": FileFormat(),
    "text": FileFormat(),
}
DELIMITED = tuple(name for name, format in FORMATS.items() if format.delimiter)
# The format for each ending of a name
SUFFIXES: dict[str, str] = {}
for _name, _format in FORMATS.items():
    SUFFIXES.update(dict.fromkeys(_format.suffixes, _name))


@dataclass(frozen=True)
class ReadOptions:
    """The settings that decide what the rows of a file are; `DataConfig` explains them and sets their
    defaults. They are part of a table's cache key."""

    format: str = DataConfig.format
    text_column: int | str | list[int | str] | None = DataConfig.text_column
    text_pair_column: int | str | None = DataConfig.text_pair_column
    label_column: int | str | None = DataConfig.label_column
    header: bool | None = DataConfig.header
    sheet: int | str | None = DataConfig.sheet
    encoding: str = DataConfig.encoding
    quoting: str = DataConfig.quoting
    remove_spaces: bool = DataConfig.remove_spaces
    limit: int | None = DataConfig.limit
    task: str = DataConfig.task
    label_separator: str | None = DataConfig.label_separator
    label_columns: list[str] | None = DataConfig.label_columns
    votes: int | str | None = DataConfig.votes
    label_hierarchy: str | None = DataConfig.label_hierarchy
    overruled_encoding: str | None = None
    """The setting, where the content of the file shows another encoding. It is no setting."""
    sheet_if_there: bool = False
    """The sheet is that of the training: a workbook without it is read as without the setting. It is no
    setting."""
    read_sheet: str | None = None
    """The name of the sheet that is read of a workbook. It is no setting."""
    other_sheets: tuple[str, ...] = ()
    """The sheets with values that are not read, where no setting has chosen one. It is no setting."""
    train_has_no_header: bool = False
    """The columns are those of a train file without header: names in a header count before their numbers,
    and of two columns without names the first is the text. It is no setting."""

    @classmethod
    def of(cls, config: DataConfig) -> ReadOptions:
        settings = {}
        for option in fields(cls):
            if hasattr(config, option.name):
                settings[option.name] = getattr(config, option.name)
        return cls(**settings)

    def for_other_files(self, assumed: dict[str, Any]) -> ReadOptions:
        """Return the options for other files of the same data, by the settings that were assumed of the
        train file."""
        options = replace(self, **assumed)
        if "sheet" in assumed:
            options = replace(options, sheet_if_there=True)
        if "header" in assumed:
            # Other files may have a header
            return replace(options, header=self.header, train_has_no_header=True)
        return options


def recognised(
    path: Source, options: ReadOptions, need_label: bool = True, usual: str | None = None
) -> ReadOptions:
    """Return the settings with the encoding, the format, the sheet and the quoting that a file has, in place
    of utf-8 and auto. The format is that of its content, else the `usual` one: None is that of its name, but
    without labels a .txt file has one text a line, as a stream has. Raises InputError for a file that cannot
    be read, or begins otherwise than its format."""
    encoding = file_encoding(path, options.encoding)
    start = read_start(path)
    lines = []
    if not isinstance(path, Stream) and not start.startswith(MAGIC):
        lines = first_lines(path, encoding)
    format = options.format
    if format == "auto":
        if usual is None:
            usual = _format_of_name(path, need_label)
        format = content_format(start, lines, usual) or usual
        _check_separator(path, format, lines)
    _check_beginning(path, format, start)
    # The same options may be recognised again
    if format == "xlsx" and options.read_sheet is None:
        chosen = choose_sheet(path, options.sheet, options.sheet_if_there)
        options = replace(options, read_sheet=chosen.name, other_sheets=chosen.others)
    overruled_encoding = options.overruled_encoding
    if encoding == "utf-8" and known_encoding(options.encoding) in CHINESE_ENCODINGS:
        overruled_encoding = options.encoding
    return replace(
        options,
        encoding=encoding,
        overruled_encoding=overruled_encoding,
        format=format,
        quoting=_quoting(options.quoting, format, lines),
    )


def _format_of_name(path: Source, need_label: bool) -> str | None:
    suffix = path.suffix.lower()
    if isinstance(path, Stream) or (suffix == ".txt" and not need_label):
        return "text"
    return SUFFIXES.get(suffix)


def first_lines(path: Path, encoding: str) -> list[str]:
    """Return the first lines of a file that are not blank, without their ends."""
    lines = next(line_blocks(path, encoding), [])
    return [line.rstrip("\r\n") for line in lines[:FIRST_LINES] if line.strip()]


def _check_separator(path: Source, format: str | None, lines: list[str]) -> None:
    """Raise InputError where the lines of a table show a separator that no format has."""
    if format not in DELIMITED:
        return
    separator = shown_separator(lines, FORMATS[format].delimiter, FORMATS[format].is_quoted)
    if separator is None:
        return
    raise InputError(
        f"{path}: a tab, comma, semicolon or vertical bar is needed between the columns, found "
        f"'{separator}'; replace it by tabs"
    )


def _check_beginning(path: Source, format: str | None, start: bytes) -> None:
    """Raise InputError for a file whose first bytes are not those of its format."""
    magic: tuple[bytes, ...] = ()
    needed = "text"
    if format is not None:
        magic = FORMATS[format].magic
    if magic:
        needed = format
    if start.startswith(MAGIC) and not start.startswith(magic):
        raise InputError(
            f"{path}: {needed} is needed, found a packed file, a workbook, Parquet, Arrow or UTF-32; unpack "
            "it, save it as CSV (UTF-8), or set --data.format"
        )
    if format is None:
        endings = ", ".join(SUFFIXES)
        raise InputError(
            f"{path}: cannot tell the format (known endings of names: {endings}); set --data.format"
        )
    if isinstance(path, Stream) and magic:
        raise InputError(f"{path}: {format} files cannot be read from a stream; save it to a file first")


def _quoting(quoting: str, format: str, lines: list[str]) -> str:
    """Return `double` where double quotes may enclose the fields of a file, `double_after_spaces` where a
    space stands before such quotes, else `never`."""
    delimiter = FORMATS[format].delimiter
    if not delimiter:
        return "never"
    if quoting == "auto":
        quoting = "never"
        if FORMATS[format].is_quoted or are_enclosed(lines, delimiter):
            quoting = "double"
    if quoting == "double" and are_quoted_after_spaces(lines, delimiter):
        return "double_after_spaces"
    return quoting


def content_format(start: bytes, lines: list[str], usual: str | None) -> str | None:
    """Return the format that the beginning of a file shows, also another one than the `usual`, or None."""
    for name in ("parquet", "arrow"):
        if start.startswith(FORMATS[name].magic):
            return name
    if start.startswith(b"PK") and (b"xl/w" in start or b"opendocument.spreadsheet" in start[:100]):
        return "xlsx"
    if not lines:
        return None
    return _json_format(lines, usual) or _line_format(lines, usual)


def _json_format(lines: list[str], usual: str | None) -> str | None:
    if JSON_START.match("\n".join(lines[:2])):
        return "json"
    try:
        value = json.loads(lines[0])
    except JSON_ERRORS:
        return None
    # Numbers in brackets may be a text
    if not isinstance(value, (list, dict)) or {str, dict, list}.isdisjoint(map(type, value)):
        return None
    # Texts may begin with brackets too
    if len(lines) > 1 and not lines[1].lstrip().startswith(("[", "{")):
        return None
    if usual == "json" and len(lines) == 1:
        return "json"
    return "jsonl"


def _line_format(lines: list[str], usual: str | None) -> str | None:
    """Return the format of lines that are no JSON, or None."""
    have_labels = all(LABEL_PREFIX in line for line in lines)
    if have_labels and (usual not in DELIMITED or "\t" not in lines[0]):
        return "fasttext"
    if usual not in DELIMITED:
        return None
    named_separator = excel_separator(lines)
    if named_separator:
        for name in DELIMITED:
            if FORMATS[name].delimiter == named_separator:
                return name
        return None
    # Other separators may be in the fields of lines with a longer one, such as keywords after _!_
    separator = shown_separator(lines, FORMATS[usual].delimiter, FORMATS[usual].is_quoted)
    if separator and len(separator) > 1 and not separator.isspace():
        return None
    # One column, or lines that differ, show that the name's separator is not the right one
    if len(lines) > 1:
        for name in (usual, *DELIMITED):
            if num_fields(lines, FORMATS[name].delimiter, FORMATS[name].is_quoted) > 1:
                return name
    return None


def read_blocks(path: Source, options: ReadOptions) -> Iterator[Block] | Iterator[ArrowBlock]:
    """Yield the records of a file whose format, encoding and quoting are known, many at a time. Raises
    InputError for a file that cannot be read."""
    format = FORMATS[options.format]
    if format.batches:
        return arrow_blocks(format.batches(path), path)
    if options.format == "xlsx":
        return _blocks(excel_records(path, options.read_sheet))
    # A line of a quoted text may begin with a mark that is part of it
    line_lists = line_blocks(path, options.encoding, keeps_marks=options.quoting != "never")
    lines = chain.from_iterable(line_lists)
    if options.format == "json":
        return _blocks(json_array_records(path, lines))
    if options.format == "jsonl":
        return _blocks(json_line_records(lines))
    if options.format == "fasttext":
        return _blocks(fasttext_records(lines))
    if options.quoting == "never":
        blocks = plain_blocks(line_lists, format.delimiter)
    else:
        after_spaces = options.quoting == "double_after_spaces"
        blocks = quoted_blocks(lines, format.delimiter, after_spaces)
    if format.delimiter:
        return without_separator_line(blocks)
    return blocks


def _blocks(records: Iterator[tuple[int, Any]]) -> Iterator[Block]:
    while True:
        numbered = list(islice(records, BLOCK_ROWS))
        if not numbered:
            return
        lines, values = zip(*numbered, strict=True)
        yield Block(lines, values)
