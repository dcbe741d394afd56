"""What the values of a column show: texts, labels, or texts that are pairs with those of another column."""

import re
from collections.abc import Sequence
from typing import Any

# Fewer rows show nothing
MIN_ROWS = 10
# Characters of a label
LONGEST_LABEL = 40
# Of different values, in a column of texts
DIFFERENT = 0.6
# How much more two texts of a row have in common than two of different rows, from 0 to 1. Question pairs
# (AFQMC) have 0.5, STS-B 0.4 to 0.8, names with reviews 0.0, two reviews without relation up to 0.06.
ALIKE = 0.15
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?%?")
# A character of a language without spaces, or two words
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]|[^\W\d]\s+[^\W\d]")


def is_number(value: Any) -> bool:
    """Return whether a value is a number, or text that is one."""
    is_numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_numeric or (isinstance(value, str) and NUMBER.fullmatch(value.strip()) is not None)


def label_like(values: Sequence) -> bool:
    """Return whether the values of a column, two or more different ones, come again and again."""
    shown = [str(value).strip() for value in values]
    different = set(shown)
    is_short = all(len(value) <= LONGEST_LABEL for value in different)
    return is_short and len(shown) >= MIN_ROWS and 2 <= len(different) <= len(shown) / 2


def text_like(values: Sequence) -> bool:
    """Return whether most values of a column are different, and are words."""
    shown = [value.strip() for value in values if isinstance(value, str)]
    if len(shown) < MIN_ROWS or label_like(shown):
        return False
    words = sum(WORDS.search(value) is not None for value in shown)
    return len(set(shown)) >= DIFFERENT * len(shown) and words >= DIFFERENT * len(values)


def are_pairs(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether the texts of two columns are pairs: in a row they share more characters than across."""
    shift = len(first) // 2
    in_row = _shared(zip(first, second, strict=True))
    across = _shared(zip(first, [*second[shift:], *second[:shift]], strict=True))
    return in_row - across >= ALIKE * (1 - across)


def _shared(pairs: Any) -> float:
    shares = []
    for one, other in pairs:
        characters = set(str(one)), set(str(other))
        shares.append(len(characters[0] & characters[1]) / max(1, min(map(len, characters))))
    return sum(shares) / len(shares)


def zero_one_columns(rows: list[list], columns: Sequence[int]) -> list[int]:
    """Return which of the columns have 0 and 1 only."""
    if len(rows) < MIN_ROWS:
        return []
    return [column for column in columns if {str(row[column]).strip() for row in rows} <= {"0", "1"}]
