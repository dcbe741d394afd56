"""What the values of a column look like: labels, texts, pairs of texts, or 0 and 1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from .labels import ZERO_OR_ONE
from .separators import LONGEST_LABEL, come_again

MIN_ROWS = 10  # rows that show what a column is
MIN_FLAGS = 5  # values that show that a column has nothing but 0 and 1
MAX_SEARCHED = 1000  # characters of a value in which words are looked for
DIFFERENT = 0.6  # share of different values in a column of texts
# How much more alike, from 0 to 1, the two texts of a row must be than texts of different rows, to be pairs.
# Pairs of questions (AFQMC) have 0.5, STS-B 0.4 to 0.8, names with reviews 0.0, unrelated reviews 0.06.
ALIKE = 0.15
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?%?")
# Words are a character of a language without spaces, or two words with a space between them
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]|[^\W\d]\s+[^\W\d]")
# Names of files and addresses are no texts, whatever words they have
PATH = re.compile(
    r"https?://\S+|(/|[A-Za-z]:[/\\])[^\s，。！？]*|[^\s，。！？]*[/\\][^\s，。！？]*\.[A-Za-z0-9]{1,5}"
)


def are_numbers(values: Iterable[str]) -> bool:
    return all(map(NUMBER.fullmatch, values))


def different_values(values: Iterable) -> set[str]:
    return {str(value).strip() for value in values}


def are_labels(values: Sequence, may_be_numbers: bool = False) -> bool:
    """Return whether the values of a column come again and again, two or more of them; where labels may be
    numbers, whether they are numbers."""
    if len(values) < MIN_ROWS:
        return False
    different = different_values(values)
    if may_be_numbers:
        return are_numbers(different)
    if max(map(len, different)) > LONGEST_LABEL:
        return False
    return come_again(values, different)


def are_texts(values: Sequence) -> bool:
    """Return whether most values of a column are different texts with words in them; paths are none."""
    texts = [value.strip() for value in values if isinstance(value, str)]
    if len(texts) < MIN_ROWS or are_labels(texts):
        return False
    num_with_words = 0
    for text in texts:
        if WORDS.search(text, 0, MAX_SEARCHED) and not PATH.fullmatch(text):
            num_with_words += 1
    are_different = len(set(texts)) >= DIFFERENT * len(texts)
    return are_different and num_with_words >= DIFFERENT * len(values)


def are_flags(values: Sequence) -> bool:
    """Return whether all values of a column are 0 and 1, or truth values."""
    different = set(map(str.lower, different_values(values)))
    return len(values) >= MIN_FLAGS and len(different) == 2 and different <= ZERO_OR_ONE.keys()


def are_pairs(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether the two texts of one row share more characters than texts of different rows."""
    shift = len(first) // 2
    of_other_rows = [*second[shift:], *second[:shift]]
    share_of_rows = _shared_characters(first, second)
    share_by_chance = _shared_characters(first, of_other_rows)
    return share_of_rows - share_by_chance >= ALIKE * (1 - share_by_chance)


def _shared_characters(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the mean share of the characters of the shorter text that the other text has too."""
    total = 0.0
    for first_text, second_text in zip(first, second, strict=True):
        first_characters = set(str(first_text))
        second_characters = set(str(second_text))
        fewest = min(len(first_characters), len(second_characters))
        total += len(first_characters & second_characters) / max(1, fewest)
    return total / len(first)


def names_inside(columns: Sequence[Sequence[Any]]) -> list[str]:
    """Return the names of the fields of objects that are the cells of a column, also in lists of one."""
    for values in columns:
        if not values:
            continue
        first = values[0]
        while isinstance(first, list) and len(first) == 1:
            first = first[0]
        if isinstance(first, dict):
            return list(first)
    return []


def cell_text(value: Any) -> str:
    """Return a cell as text, without the white space around it."""
    return str(value).strip()


def as_list(setting: Any) -> list:
    """Return the columns that a setting names, which may be one or a list of them."""
    if isinstance(setting, list):
        return setting
    return [setting]
