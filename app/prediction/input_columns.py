"""What of the input stands before the predictions: all columns of a table, or line and text."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable
from datetime import date, time
from typing import Any

from ..data.columns import Columns
from ..data.read import BadRow
from ..data.rows import Row


class NumberedTexts:
    """The line of a row and its text, for pairs both."""

    # Keys of objects that are in no column, and values that no file can hold
    left_out: frozenset[str] = frozenset()
    replaced = 0

    def __init__(self, has_pairs: bool) -> None:
        self.names = ["line", "text", "text_pair"] if has_pairs else ["line", "text"]

    def values(self, row: Row | BadRow) -> list:
        """Return the values of the columns, None for the texts of an invalid row."""
        texts = [row.text, row.pair] if isinstance(row, Row) else [None, None]
        return [row.line, *texts][: len(self.names)]

    def record(self, row: Row | BadRow) -> dict[str, Any]:
        """Return the values by name."""
        return dict(zip(self.names, self.values(row), strict=True))


class KeptColumns:
    """All columns of a table, in order, each value as it was read. Without names they are called text,
    text_pair, else column_N, from 0. The last one has all fields too many, with commas between them. Values
    with bytes that are not in the encoding are `replaced` by their `writable` form, and counted."""

    def __init__(self, names: list[str], used: Columns) -> None:
        self.names = names
        self.is_object = used.width is None
        self.left_out: set[str] = set()
        self.replaced = 0

    @classmethod
    def of(cls, used: Columns, names: list | None, keys: Iterable[str]) -> KeptColumns:
        """Return the columns of a file: `names`, None where it has none, or the `keys` of objects."""
        if used.width is None:
            return cls(list(keys), used)
        roles = {used.text: "text", used.pair: "text_pair"}
        numbered = [roles.get((number,), f"column_{number}") for number in range(used.width)]
        return cls(numbered if names is None else list(map(str, names)), used)

    def values(self, row: Row | BadRow) -> list:
        """Return the values of the columns, None for those that a row does not have."""
        record = row.record
        if self.is_object:
            if not isinstance(record, dict):
                return [None] * len(self.names)
            self.left_out |= record.keys() - set(self.names)
            return self._written([record.get(name) for name in self.names])
        record = record if isinstance(record, list) else []
        width = len(self.names)
        if len(record) > width:
            record = [*record[: width - 1], ",".join(map(as_text, record[width - 1 :]))]
        return self._written(list(record) + [None] * (width - len(record)))

    def _written(self, values: list) -> list:
        written = list(map(writable, values))
        self.replaced += sum(one != other for one, other in zip(values, written, strict=True))
        return written

    def record(self, row: Row | BadRow) -> dict[str, Any]:
        """Return the values by name; of an object its own keys."""
        if self.is_object:
            known = row.record if isinstance(row.record, dict) else {}
            return dict(zip(map(writable, known), self._written(list(known.values())), strict=True))
        return dict(zip(free_names(self.names, ""), self.values(row), strict=True))


def writable(value: Any) -> Any:
    """Return a value with U+FFFD for bytes that could not be decoded, and for halves of characters."""
    if isinstance(value, list):
        return list(map(writable, value))
    if isinstance(value, dict):
        return {writable(key): writable(inner) for key, inner in value.items()}
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


def free_names(names: Iterable[str], prefix: str, taken: Iterable[str] = ()) -> list[str]:
    """Return names of which none is `taken` or there twice: those that are get `prefix`, then a number."""
    seen, free = Counter(taken), []
    for name in names:
        new = name if name not in seen else f"{prefix}{name}"
        number = 2
        while new in seen:
            new = f"{prefix}{name}_{number}"
            number += 1
        seen[new] += 1
        free.append(new)
    return free


def as_text(value: Any) -> str:
    """Return a value as text: nothing for None, lists, objects and truth values as in JSON."""
    if isinstance(value, str):
        return value
    # Or not a number
    if value is None or value != value:  # noqa: PLR0124
        return ""
    if isinstance(value, (bool, list, dict)):
        return json.dumps(value, ensure_ascii=False, default=as_json)
    return as_json(value) if isinstance(value, bytes) else str(value)


def as_json(value: Any) -> str:
    """Return what JSON has no type for: dates in ISO form, bytes in base64, all else as Python shows it."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
