"""The beginning of a file, whose columns are to be chosen: names of columns and rows of values, whatever the
format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from .cells import as_text

Key = int | str


@dataclass(frozen=True)
class FirstRows:
    """The beginning of a file. `where` is the place of its first row, for messages; `names` are the names of
    the columns, if they have names; `rows` are rows of values, all of the same width, and `records` those of
    them that are objects."""

    where: str
    first: list | dict
    names: list[str] | None
    rows: list[list]
    records: list[dict] = field(default_factory=list)

    @property
    def width(self) -> int:
        return len(self.first)

    @property
    def num_columns(self) -> int:
        """The columns that can be named: objects may have more keys than the first one."""
        return max(self.width, len(self.names or []))

    @property
    def is_object(self) -> bool:
        return isinstance(self.first, dict)

    @cached_property
    def lower_names(self) -> list[str]:
        return [name.strip().lower() for name in self.names or []]

    @property
    def keys(self) -> Sequence[Key]:
        """The names of the columns, or their numbers where they have none."""
        return self.names or range(self.width)

    def values(self, column: int) -> list:
        return [row[column] for row in self.rows]

    def has_column(self, column: Key) -> bool:
        """Return whether there is a column with this name or number."""
        if isinstance(column, int):
            return -self.num_columns <= column < self.num_columns
        return column in (self.names or [])

    def with_names_of_all(self) -> FirstRows:
        """Return the same with the keys of all objects: not all have those of the first one."""
        if not self.is_object:
            return self
        names = dict.fromkeys(self.names)
        for record in self.records:
            names.update(dict.fromkeys(record))
        rows = [list(map(record.get, names)) for record in self.records]
        return replace(self, names=list(names), rows=rows)


def first_rows(where: str, first: list | dict, sample: list, header: list | None) -> FirstRows:
    """Return the beginning of a file whose first record is `first`; `sample` are its first records."""
    rows = []
    records = []
    if isinstance(first, dict):
        names = list(first)
        for record in sample:
            if isinstance(record, dict):
                records.append(record)
                rows.append(list(map(record.get, names)))
    else:
        names = None
        if header is not None:
            names = [as_text(name).strip() for name in header]
        for record in sample:
            if isinstance(record, list) and len(record) == len(first):
                rows.append(record)
    return FirstRows(where=where, first=first, names=names, rows=rows, records=records)
