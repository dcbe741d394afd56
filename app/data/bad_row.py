"""An invalid row, and the messages about it and about a file that changes while it is read."""

from typing import Any, NamedTuple

from ..errors import InputError


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False


def bad_row_message(path: object, unit: str, number: int, problem: object) -> str:
    """Return a problem of a row with its place; `unit` is what the number counts, such as a line."""
    return f"{path}, {unit} {number}: {problem}"


def changed_error(path: object) -> InputError:
    """Return the error of a file that changed while it was read."""
    return InputError(
        f"{path}: a data file must not change while it is read, but this one did; start again once it is "
        "written to its end"
    )
