"""What the readers of all formats share: records from a file, one at a time, and the settings for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from ...config.schema import DataConfig
from ...words import _
from ..text_files import Source, Span


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False


def bad_row_message(path: str, unit: str, number: int, problem: object) -> str:
    """Return a problem of a row with its place; `unit` is what the number counts."""
    texts = {
        "line": _("{path}, line {number}: {problem}"),
        "row": _("{path}, row {number}: {problem}"),
        "element": _("{path}, element {number}: {problem}"),
        "text": _("{path}, text {number}: {problem}"),
    }
    return texts[unit].format(path=path, number=number, problem=problem)


@dataclass(frozen=True)
class ReadOptions:
    """The settings that decide what the rows of a file are; `DataConfig` explains them and sets their
    defaults. They are part of a table's cache key."""

    format: str = DataConfig.format
    text_column: int | str | None = DataConfig.text_column
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


class FileStart(NamedTuple):
    """The first bytes of a file, the same decoded (None where that fails), and whether that is all."""

    path: Path
    content: bytes
    text: str | None
    is_whole: bool


class Reader:
    """Reads a file of one format, or a `span` of it. `has_lines`: no line has parts of two records."""

    span: Span | None = None
    has_lines = False

    def __init__(self, path: Source, options: ReadOptions) -> None:
        self.path = path
        self.options = options

    @property
    def first_line(self) -> int:
        """The number of the first line, or row."""
        return 1 if self.span is None else self.span.line

    @classmethod
    def recognises(cls, start: FileStart) -> bool:
        """Return whether a file is of this format by its content, whatever its name is."""
        return False

    def column_names(self) -> list[str] | None:
        """Return the names of the columns where the file has them apart from its records, else None."""
        return None

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, Any]]:
        """Yield the number, from 1, and the record of each row: a list of fields, an object, or a `BadRow`.

        `columns` are those in use: a reader may leave out the values of others. Raises InputError for a file
        that cannot be read at all. Holds the whole file only where the format leaves no choice.
        """
        raise NotImplementedError
