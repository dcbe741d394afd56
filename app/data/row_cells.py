"""All cells of a batch of rows, also those of columns that are neither text nor label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Any

from .cells import as_text, valid_text
from .column_files import ArrowBlock

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FieldCells:
    """Rows that are lists of fields, of columns with these names. `records` may have anything else where a
    row is invalid. Fields after the last column are joined to it with `separator`, as the file has them."""

    names: list[str]
    records: Sequence[Any]
    separator: str

    def dictionaries(self) -> list[dict[str, Any]]:
        """Return the cells of each row by name, None for those that it lacks."""
        rows = []
        for record in self.records:
            fields = []
            if isinstance(record, list):
                fields = self._at_most_as_wide(record)
            rows.append(dict(zip_longest(self.names, fields)))
        return rows

    def columns(self) -> pa.RecordBatch:
        return record_batch(self.names, self.dictionaries())

    def _at_most_as_wide(self, fields: list) -> list:
        width = len(self.names)
        if len(fields) <= width:
            return fields
        last = self.separator.join(map(as_text, fields[width - 1 :]))
        return [*fields[: width - 1], last]


@dataclass(frozen=True)
class ObjectCells:
    """Rows that are objects, each with its own keys; other `records` are invalid."""

    records: Sequence[Any]

    def dictionaries(self) -> list[dict[str, Any]]:
        rows = []
        for record in self.records:
            if not isinstance(record, dict):
                record = {}
            rows.append(record)
        return rows

    def columns(self) -> pa.RecordBatch:
        rows = self.dictionaries()
        names: dict[str, None] = {}
        for row in rows:
            names.update(dict.fromkeys(row))
        return record_batch(list(names), rows)


@dataclass(frozen=True)
class TypedCells:
    """Rows of a file that keeps columns with their types, with these names."""

    names: list[str]
    block: ArrowBlock

    def dictionaries(self) -> list[dict[str, Any]]:
        """Return the cells of each row by name; a number that stands for a class is its name."""
        columns = map(self.block.values, range(len(self.names)))
        rows = []
        for values in zip(*columns, strict=True):
            rows.append(dict(zip(self.names, values, strict=True)))
        return rows

    def columns(self) -> pa.RecordBatch:
        """Return the columns as the file has them: numbers of classes are numbers."""
        return self.block.batch.rename_columns(self.names)


@dataclass(frozen=True)
class TextCells:
    """Texts without columns: those of a file of plain text, or of the command line."""

    lines: Sequence[int]
    texts: Sequence[str | None]

    def dictionaries(self) -> list[dict[str, Any]]:
        pairs = zip(self.lines, self.texts, strict=True)
        return [{"line": line, "text": text} for line, text in pairs]

    def columns(self) -> pa.RecordBatch:
        return record_batch(["line", "text"], self.dictionaries())


Cells = FieldCells | ObjectCells | TypedCells | TextCells


def record_batch(names: list[str], rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as columns: the values of a column have one type, or they are text."""
    import pyarrow as pa

    arrays = []
    for name in names:
        values = [row.get(name) for row in rows]
        arrays.append(arrow_array(values))
    return pa.record_batch(arrays, names=names)


def arrow_array(values: list) -> pa.Array:
    """Return values as an Arrow array, which loses nothing: values of different types, objects, and what
    Arrow has no type for become text."""
    import pyarrow as pa

    types = set(map(type, values)) - {type(None)}
    if not types or types == {str}:
        return _text_array(values)
    has_one_type = len(types) == 1 and not _have_objects(values)
    if has_one_type:
        try:
            return pa.array(values)
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            pass
    return _text_array(_values_as(as_text, values))


def _have_objects(values: Iterable) -> bool:
    """Return whether there are objects among values or in their lists: in Arrow all have the same keys."""
    for value in values:
        if isinstance(value, dict) or (isinstance(value, list) and _have_objects(value)):
            return True
    return False


def _text_array(values: list[str | None]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        return pa.array(_values_as(valid_text, values), pa.string())


def _values_as(text_of: Callable[[Any], str], values: list) -> list[str | None]:
    """Return each value as text, None as it is."""
    texts = []
    for value in values:
        text = None
        if value is not None:
            text = text_of(value)
        texts.append(text)
    return texts


def free_names(names: Iterable[str], taken: Iterable[str] = (), prefix: str = "") -> list[str]:
    """Return the names, made different from `taken` and from each other: by `prefix` before a name, and where
    that is not enough a number after it."""
    used_names = set(taken)
    free = []
    for name in names:
        new_name = name
        if new_name in used_names:
            new_name = f"{prefix}{name}"
        numbers = count(2)
        while new_name in used_names:
            new_name = f"{prefix}{name}_{next(numbers)}"
        used_names.add(new_name)
        free.append(new_name)
    return free
