"""JSON: one array of rows, or one row a line."""

import json
from collections.abc import Collection, Iterator
from typing import Any

from ...config.file_formats import SUFFIXES
from ...errors import InputError, excerpt
from ..json_values import JSON_ERRORS, json_layout, parse_json, rows_of
from ..text_files import read_lines
from . import BadRow, FileStart, Reader

LAYOUTS = ("json", "jsonl")


class JsonReader(Reader):
    """One array of rows, which may be inside an object."""

    layout = "json"

    @classmethod
    def recognises(cls, start: FileStart) -> bool:
        """Return whether a file holds JSON in this layout; with another name it may be text like that."""
        is_strict = SUFFIXES.get(start.path.suffix.lower()) not in LAYOUTS
        return start.text is not None and json_layout(start.text, start.is_whole, is_strict) == cls.layout

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, Any]]:
        """Yield number and value of each element."""
        text = "".join(read_lines(self.path, self.options.encoding))
        try:
            value = parse_json(text)
        except json.JSONDecodeError as error:
            near = excerpt(text[error.pos :]) if text[error.pos :].strip() else "the end of the file"
            raise InputError(
                f"{self.path}, line {error.lineno}: not valid JSON ({error.msg} at column {error.colno}), "
                f"found {near}; {_remedy(error)}"
            ) from error
        except JSON_ERRORS as error:
            raise InputError(f"{self.path}: JSON that cannot be read ({error}); fix the file") from error
        try:
            rows = rows_of(value)
        except ValueError as error:
            raise InputError(f"{self.path}: one array of rows is needed, found {error}") from error
        if rows is None:
            raise InputError(
                f"{self.path}: an array of pairs or of objects is needed, found {excerpt(value)}; put the "
                'rows into one array (pandas: df.to_json(path, orient="records")), or one a line and set '
                "--data.format jsonl"
            )
        yield from enumerate(rows, 1)


class JsonLinesReader(JsonReader):
    """One row a line."""

    layout = "jsonl"
    has_lines = True

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, Any]]:
        """Yield number and value of each line that is not blank."""
        lines = read_lines(self.path, self.options.encoding, self.span)
        for number, line in enumerate(lines, self.first_line):
            if not line.strip():
                continue
            try:
                yield number, parse_json(line)
            except JSON_ERRORS as error:
                problem = (
                    f"not a valid JSON value ({error}): {excerpt(line)}; each line must be one object or "
                    "array"
                )
                yield number, BadRow(number, problem)


def _remedy(error: json.JSONDecodeError) -> str:
    # Values one after another
    if error.msg != "Extra data":
        return "fix the file there"
    if (error.lineno, error.colno) == (2, 1):
        return "it looks like JSON Lines, set --data.format jsonl"
    return "make one array of the values: [ before the first, a comma between two, ] after the last"
