"""Texts -> their tokens with the characters that each token stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tokenizers import Encoding

from ..data.rows import Row
from ..data.text_encoder import TextEncoder
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
    """One text, or a pair: `input_ids` and `token_types`, (num_tokens,) int64, and units. `read`: the first
    and last character (exclusive) of each text that the model reads; `is_cut`: there are more tokens."""

    texts: tuple[str, ...]
    input_ids: np.ndarray
    token_types: np.ndarray
    units: list[Unit]
    read: list[tuple[int, int]]
    is_cut: bool


def tokenise(encoder: TextEncoder, row: Row, unknown_id: int | None) -> TokenisedText:
    """Return a text, or a pair, as its tokens; raises InputError for one without a token."""
    texts = (row.text,) if row.pair is None else (row.text, row.pair)
    [encoding] = encoder.encode(
        [row.text if row.pair is None else texts], lambda _: "the text", with_offsets=True
    )
    units = _units(encoding, unknown_id)
    if not units:
        raise InputError(
            "the text has no token of its characters, so nothing can be explained; give another text"
        )
    is_cut = bool(encoding.overflowing)
    read = [_range(units, part) if is_cut else (0, len(given)) for part, given in enumerate(texts)]
    ids, types = (np.array(values, np.int64) for values in (encoding.ids, encoding.type_ids))
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


def _range(units: list[Unit], part: int) -> tuple[int, int]:
    """Return the first and last character (exclusive) of a text's units, twice 0 without any."""
    of_part = [unit for unit in units if unit.part == part]
    return (min(unit.start for unit in of_part), max(unit.end for unit in of_part)) if of_part else (0, 0)


def _units(encoding: Encoding, unknown_id: int | None) -> list[Unit]:
    units: list[Unit] = []
    for position, (part, (start, end)) in enumerate(
        zip(encoding.sequence_ids, encoding.offsets, strict=True)
    ):
        # A special token, or one that stands for no character
        if part is None or end <= start:
            continue
        is_unknown = encoding.ids[position] == unknown_id
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
