"""A text as the tokens that a model reads of it, and the units of characters that these stand for."""

from typing import NamedTuple

import numpy as np

from ..data.rows import Row
from ..data.tokens import RowEncoder, Token, ranges_of
from ..errors import InputError


class Unit(NamedTuple):
    """Characters `start` to `end` of text `part` (1: the second of a pair), and their tokens' positions. Most
    units have one token. Tokens that share a character, as in byte-level tokenizers, are one unit."""

    part: int
    start: int
    end: int
    tokens: tuple[int, ...]
    is_unknown: bool


class TokenisedText(NamedTuple):
    """One text, or a pair: `tokens` (2, num_tokens) int64 are ids and token types; `units` in order. `read`
    has the ranges of characters, from the first to the last (exclusive), that the model reads of each text:
    none, one, or head and tail."""

    texts: tuple[str, ...]
    tokens: np.ndarray
    units: list[Unit]
    read: list[list[tuple[int, int]]]


def tokenise(encoder: RowEncoder, row: Row, unknown_id: int | None) -> TokenisedText:
    """Return a text, or a pair, as its tokens; raises InputError for one without a token, and for one that is
    read in several windows."""
    texts = row.texts
    parts, is_cut = encoder.parts_read(texts)
    if encoder.long.way == "windows" and len(parts) > 1:
        [(start, end)] = ranges_of(parts[:1], 0)
        raise InputError(
            f"a text that is read in one window is needed (data.long windows), found one of {len(parts)}; "
            f"explain a part of it, for instance its first window, characters {start + 1:,} to {end:,}"
        )
    tokens = [token for part in parts for token in part]
    units = units_of(tokens, unknown_id)
    if not units:
        raise InputError("the text must have tokens that stand for its characters, found none; give another")
    ranges_read = []
    for index, text in enumerate(texts):
        ranges_read.append(ranges_of(parts, index) if is_cut else [(0, len(text))])
    ids = [token.id for token in tokens]
    types = [token.type for token in tokens]
    return TokenisedText(texts, np.array([ids, types], np.int64), units, ranges_read)


def units_of(tokens: list[Token], unknown_id: int | None) -> list[Unit]:
    """Return the units of tokens, in order; `unknown_id` is the token of characters the model lacks."""
    units: list[Unit] = []
    for position, token in enumerate(tokens):
        if token.text is None or token.end <= token.start:
            continue  # a special token, or one that stands for no character
        is_unknown = token.id == unknown_id
        unit = Unit(token.text, token.start, token.end, (position,), is_unknown)
        if units and units[-1].part == unit.part and unit.start < units[-1].end:
            unit = joined(units.pop(), unit)
        units.append(unit)
    return units


def joined(first: Unit, second: Unit) -> Unit:
    """Return two units of a text that share a character as one."""
    return Unit(
        part=first.part,
        start=first.start,
        end=max(first.end, second.end),
        tokens=first.tokens + second.tokens,
        is_unknown=first.is_unknown or second.is_unknown,
    )
