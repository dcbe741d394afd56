"""Texts -> their tokens with the characters that each token stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..data.long_texts import RowEncoder, Token, ranges_of
from ..data.rows import Row
from ..errors import InputError


@dataclass(frozen=True)
class Unit:
    """Characters `start` to `end` of text `part` (1: the second of a pair), and their tokens' positions. Most
    units have one token. Tokens that share a character, as in byte-level tokenizers, are one unit."""

    part: int
    start: int
    end: int
    tokens: tuple[int, ...]
    is_unknown: bool = False


@dataclass(frozen=True)
class TokenisedText:
    """One text, or a pair: `input_ids` and `token_types`, both (num_tokens,) int64, and units, in order.

    `read` has the ranges of characters, from the first to the last (exclusive), that the model reads of each
    text: none, one, or head and tail; `is_cut` is whether there were more tokens than it takes.
    """

    texts: tuple[str, ...]
    input_ids: np.ndarray
    token_types: np.ndarray
    units: list[Unit]
    read: list[list[tuple[int, int]]]
    is_cut: bool


def tokenise(encoder: RowEncoder, row: Row, unknown_id: int | None) -> TokenisedText:
    """Return a text, or a pair, as its tokens; raises InputError for one without a token, and for one that is
    read in several windows."""
    texts = (row.text,) if row.pair is None else (row.text, row.pair)
    parts, is_cut = encoder.parts_read(texts)
    if encoder.long.way == "windows" and len(parts) > 1:
        [(start, end)] = ranges_of(parts[:1], 0)
        raise InputError(
            f"a text that is read in one window is needed (data.long windows), found one of {len(parts)}; "
            f"explain a part of it, for instance its first window, characters {start + 1:,} to {end:,}"
        )
    tokens = [token for part in parts for token in part]
    units = _units(tokens, unknown_id)
    if not units:
        raise InputError(
            "the text has no token of its characters, so nothing can be explained; give another text"
        )
    read = [ranges_of(parts, text) if is_cut else [(0, len(given))] for text, given in enumerate(texts)]
    ids, types = (np.array(values, np.int64) for values in list(zip(*tokens, strict=True))[:2])
    return TokenisedText(texts, ids, types, units, read, is_cut)


def words_of_units(text: TokenisedText) -> list[list[int]]:
    """Return the indices of the units of each word, by jieba; where rjieba is not installed, of each unit."""
    try:
        import rjieba
    except ImportError:
        return [[at] for at in range(len(text.units))]
    word_at = [
        np.repeat(np.arange(len(words)), [len(word) for word in words])
        for words in map(rjieba.cut, text.texts)
    ]
    groups: dict[tuple[int, int], list[int]] = {}
    for at, unit in enumerate(text.units):
        groups.setdefault((unit.part, int(word_at[unit.part][unit.start])), []).append(at)
    return list(groups.values())


def _units(tokens: list[Token], unknown_id: int | None) -> list[Unit]:
    units: list[Unit] = []
    for position, (token_id, _, part, start, end) in enumerate(tokens):
        # A special token, or one that stands for no character
        if part is None or end <= start:
            continue
        is_unknown = token_id == unknown_id
        last = units[-1] if units and units[-1].part == part else None
        if last is not None and start < last.end:
            units[-1] = replace(
                last,
                end=max(end, last.end),
                tokens=(*last.tokens, position),
                is_unknown=last.is_unknown or is_unknown,
            )
        else:
            units.append(Unit(part, start, end, (position,), is_unknown))
    return units
