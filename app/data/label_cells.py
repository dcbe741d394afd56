"""What one cell says of a row's label: its text, a number, the levels of a path."""

import math
import re
from datetime import date, time
from decimal import Decimal
from typing import Any

from ..errors import InputError, excerpt
from .cells import clean_text

# A column for each label says by one of these values, in any case, whether the row has the label
ZERO_OR_ONE = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
INTEGER = re.compile("-?[0-9]{1,18}")
INTEGER_AS_FLOAT = re.compile(r"(-?\d{1,18})\.0")
LARGEST_NUMBER = 1e100  # the squares of larger numbers do not add up


def label_text(value: Any) -> str:
    """Return one label as a string, as JSON and fastText mean it: true, 1.0 as 1, without __label__; raises
    ValueError with the problem."""
    text = clean_text(_as_string(value), False, "label").removeprefix("__label__")
    match = INTEGER_AS_FLOAT.fullmatch(text)
    if match:
        return match[1]
    return text


def _as_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, (date, time)):
        return str(value).removesuffix(" 00:00:00")
    # Integers come as floats from a column with missing values, and as decimals from databases
    if isinstance(value, int) or (isinstance(value, (float, Decimal)) and value % 1 == 0):
        return str(int(value))
    raise ValueError(
        f"the label must be a string or an integer, found {excerpt(value)}; fix the row or set "
        "--data.label_column"
    )


def number_of(value: Any) -> float | None:
    """Return the number in a cell, None where there is none or it is too large."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        return None
    text = str(value)
    # Python reads 1_000 too
    if "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if math.isnan(number) or abs(number) > LARGEST_NUMBER:
        return None
    return number


def path_of(label: str, separator: str | None) -> str:
    """Return a label, in a hierarchy without spaces around levels; raises ValueError for an empty level."""
    levels = [label]
    if separator:
        levels = list(map(str.strip, label.split(separator)))
    if not all(levels):
        raise ValueError(
            f"level {levels.index('') + 1} of the label is empty, found {excerpt(label)}; write "
            f"'{separator}' between two levels only, or fix the row"
        )
    return (separator or "").join(levels)


def refuse_vector(value: Any) -> None:
    """Raise InputError for a list of 0 and 1 that says which labels a row has, but not their names."""
    if not isinstance(value, list) or len(value) < 2:
        return
    are_flags = all(isinstance(number, (bool, int, float)) and number in (0, 1) for number in value)
    # Labels may be called 0 and 1, but no row has one of them twice
    if are_flags and len(set(value)) < len(value):
        raise InputError(
            f"a list must have the names of the labels, found the vector {excerpt(value)}; write their "
            "names, or a column of 0 and 1 for each label with --data.task multi_label --data.label_columns"
        )
