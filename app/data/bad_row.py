"""An invalid row, and the message about it."""

from typing import Any, NamedTuple

from ..words import _


class BadRow(NamedTuple):
    """An invalid row: `line` is its number in the file, `problem` the rule, what was found and the remedy.
    `record` as in `Row`; `is_empty`: it has no text, so nothing is lost without it."""

    line: int
    problem: str
    record: Any = None
    is_empty: bool = False


def bad_row_message(path: object, unit: str, number: int, problem: object) -> str:
    """Return a problem of a row with its place; `unit` is what the number counts, a key of `texts`."""
    texts = {
        "line": _("{path}, line {number}: {problem}"),
        "row": _("{path}, row {number}: {problem}"),
        "element": _("{path}, element {number}: {problem}"),
        "text": _("{path}, text {number}: {problem}"),
    }
    return texts[unit].format(path=path, number=number, problem=problem)
