"""What JSON text holds: the rows of one value, one value or lines."""

import json
from typing import Any

from ..runtime.disk import unique_keys

# ValueError also: an integer of thousands of digits
JSON_ERRORS = (ValueError, RecursionError)


def parse_json(text: str) -> Any:
    """Return the value of JSON text; raises ValueError (JSONDecodeError for its syntax), also for a key that
    is twice in an object, and RecursionError."""
    return json.loads(text, object_pairs_hook=unique_keys)


def rows_of(value: Any) -> list | None:
    """Return the rows in a JSON value: an array, or the only array of rows inside an object; else None.
    Raises ValueError, saying which, for an object with several arrays of rows."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    arrays = {key: inner for key, inner in value.items() if _is_rows(inner)}
    if len(arrays) > 1:
        raise ValueError(f"several arrays of rows, {', '.join(arrays)}; write each into a separate file")
    return next(iter(arrays.values()), None)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, (list, dict)) for row in value)


def json_layout(start: str, is_whole: bool, strict: bool) -> str | None:
    """Return `json` for one value, `jsonl` for one a line, None where the start of a file does not show it.
    `is_whole`: `start` is the whole file. `strict`: the file may be texts that begin with brackets."""
    start = start.removeprefix("\ufeff").lstrip()
    if not start.startswith(("[", "{")):
        return None
    first, _, rest = start.partition("\n")
    try:
        value = json.loads(first)
    except json.JSONDecodeError as error:
        # Then it may also be a long first line of many
        is_cut_off = "\n" not in start and not is_whole
        is_unfinished = error.pos >= len(first.rstrip()) and (not is_whole or start.rstrip().endswith("}"))
        return "json" if _begins_rows(start, is_unfinished and not is_cut_off) else None
    except JSON_ERRORS:
        return None
    if strict and not (
        value and (isinstance(value, dict) or any(isinstance(item, (str, dict, list)) for item in value))
    ):
        return None
    if rest.strip():
        return "jsonl" if rest.lstrip().startswith(("[", "{")) else None
    return _layout_of_one(value, strict)


def _layout_of_one(value: list | dict, strict: bool) -> str | None:
    """Return the layout of a file with one line of JSON; None for an array of one row, or of texts."""
    try:
        rows = rows_of(value)
    except ValueError:
        return "json"
    if isinstance(value, dict) and rows is None:
        return "jsonl" if strict else None
    return "json" if isinstance(value, dict) or _is_rows(rows) else None


def _begins_rows(start: str, goes_on: bool) -> bool:
    """Return whether an incomplete value begins like an array of rows, or an object that has one. `goes_on`:
    it surely continues in the next line, so it may be any object."""
    decoder = json.JSONDecoder()
    inner = start[1:].lstrip()
    try:
        value, end = decoder.raw_decode(inner)
    except JSON_ERRORS:
        return False
    following = inner[end:].lstrip()
    if start[0] == "[":
        return isinstance(value, (list, dict)) and bool(value) and following.startswith((",", "]"))
    is_object = isinstance(value, str) and following.startswith(":")
    return is_object and (goes_on or following[1:].lstrip().startswith(("[", "{")))
