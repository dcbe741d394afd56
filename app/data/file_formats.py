"""The formats of data files, by the names that data.format has, and the settings of how a file is read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ..config.schema import DataConfig


class FileFormat(NamedTuple):
    """`suffixes`: endings of names that stand for it. `row_unit`: what the number of a row counts.
    `delimiter` is between two fields of a line, `is_quoted`: double quotes may enclose them. `has_header`:
    the first row may have the names of the columns. `magic`: the bytes with which a file begins that is no
    text; it has no encoding, and cannot be a stream."""

    suffixes: tuple[str, ...] = ()
    row_unit: str = "line"
    delimiter: str = ""
    is_quoted: bool = False
    has_header: bool = False
    magic: tuple[bytes, ...] = ()


ARROW = b"\xff\xff\xff\xff"  # a stream of Arrow begins so
FORMATS = {
    "csv": FileFormat((".csv",), delimiter=",", is_quoted=True, has_header=True),
    "tsv": FileFormat((".tsv", ".txt", ".tab"), delimiter="\t", has_header=True),
    "semicolon": FileFormat(delimiter=";", is_quoted=True, has_header=True),
    "pipe": FileFormat(delimiter="|", has_header=True),
    "json": FileFormat((".json",), "element"),
    "jsonl": FileFormat((".jsonl", ".ndjson")),
    # Also the files of Arrow that `save_to_disk` of Hugging Face's data sets writes
    "parquet": FileFormat((".parquet", ".pq", ".arrow"), "row", magic=(b"PAR1\x15", ARROW)),
    "xlsx": FileFormat(
        (".xlsx", ".xlsm", ".xls", ".ods"), "row", has_header=True, magic=(b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
    ),
    "fasttext": FileFormat(),
    "text": FileFormat(),
}
SUFFIXES = {suffix: name for name, format in FORMATS.items() for suffix in format.suffixes}
DELIMITED = tuple(name for name, format in FORMATS.items() if format.delimiter)


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

    @property
    def is_quoted(self) -> bool:
        """Whether double quotes may enclose fields."""
        format = FORMATS[self.format]
        wanted = format.is_quoted if self.quoting == "auto" else self.quoting == "double"
        return bool(format.delimiter) and wanted


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False
