"""Texts -> the token ids of rows of at most `max_length`, with anybody's tokenizer: long texts are cut, read
as head and tail, or read in windows. A tokenizer that fails, even by a panic in Rust, is an input error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from ..config.data_settings import LongTextMode
from ..errors import InputError, excerpt, first_line, listed
from .rows import BETWEEN_TEXTS

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

REMEDY = "repair its tokenizer.json, or choose another model"
# Chinese, Latin, a digit, punctuation, a character that no vocabulary has, and a pair
PROBES = [("好a1。",), ("\ue000",), ("好", "好a")]
HEAD = 4  # one token in so many is of the head, the others are of the tail
MARGIN = 128  # tokens before the place where a text is cut that may be others than those of the whole text
Place = Callable[[int], str]
Texts = list[str] | list[tuple[str, str]]


@contextmanager
def guarded(problem: str) -> Iterator[None]:
    """Raise InputError, `problem` and the cause, where a tokenizer fails inside. The library raises plain
    `Exception`, and for a panic an exception that is none."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:  # noqa: BLE001
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{problem}: {first_line(error)}; {REMEDY}") from error


def check_tokenizer(tokenizer: Tokenizer, source: str) -> None:
    """Raise InputError, which names `source`, unless a tokenizer encodes any text and pair as tokens of its
    vocabulary. Turns its padding and truncation off."""
    with guarded(f"the tokenizer of {source} cannot encode a text"):
        definition_of(tokenizer)
        found = [tokenizer.encode(*texts).ids for texts in PROBES]
        known = set(tokenizer.get_vocab().values())
    if not found[0] or not known.issuperset(chain(*found)):
        problem = f"must make tokens of its vocabulary, found the ids {listed(chain(*found)) or 'none'}"
        raise InputError(f"the tokenizer of {source} {problem} for {excerpt(*PROBES[0])}; {REMEDY}")


def definition_of(tokenizer: Tokenizer) -> str:
    """Turn padding and truncation of a tokenizer off, and return its definition as JSON."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.to_str()


def highest_id(tokenizer: Tokenizer) -> int:
    """Return the highest id of a token; ids may have gaps."""
    return max(tokenizer.get_vocab().values(), default=-1)


def encode_batch(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], place: Place
) -> list[Encoding]:
    """Return the encodings of texts or pairs; where one fails, the error names the `place` of the first."""
    first = place(0) if texts else ""
    with guarded(f"{first}, or one of the {len(texts):,} from there: the tokenizer cannot encode a text"):
        return tokenizer.encode_batch_fast(texts)


class EncodedRows(NamedTuple):
    """Rows as token ids, special tokens included: `tokens` (num_tokens,) int32 of all their windows, end to
    end; the `lengths` of the windows, (num_windows,); `counts` (num_rows,), the windows of each row, and
    `is_cut`, whether tokens of its text are in none. Of pairs, `second_starts` (num_rows,) is the number of
    tokens before the second text, or of all."""

    tokens: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    is_cut: np.ndarray
    second_starts: np.ndarray | None


def parts_of(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Return the parts of an array, one after the other, that have these lengths."""
    return [values[start:end] for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]


class Token(NamedTuple):
    """One token: `text` is 0 or 1, of a pair, None for a special token; `start` and `end` (exclusive) are its
    characters there."""

    id: int
    type: int
    text: int | None
    start: int
    end: int


class LongTexts(NamedTuple):
    """The setting `data.long` as `way`, and the maximum windows of a row."""

    way: str = "cut"
    max_windows: int = 8


CUT = LongTexts()


def saved_long_texts(values: dict, path: Path) -> LongTexts:
    """Return what a run has written as `data.long` and `data.max_windows`, defaults where it has none. Raises
    InputError for other values, naming the file, `path`."""
    long = LongTexts(values.get("long", CUT.way), values.get("max_windows", CUT.max_windows))
    modes, most = get_args(LongTextMode), long.max_windows
    if long.way not in modes or type(most) is not int or most < 1:
        rule = f"data.long must be one of {', '.join(modes)}, and data.max_windows a number from 1"
        raise InputError(f"{path}: {rule}, found {excerpt(long.way)} and {excerpt(most)}; fix the file")
    return long


class RowEncoder:
    """Encodes texts with `tokenizer`, whose truncation it sets, as rows of up to `max_length` tokens, or any:
    cut at a `side`, or read as `long` says. Raises InputError where `long` and `max_length` do not fit."""

    def __init__(
        self, tokenizer: Tokenizer, max_length: int | None, side: str = "right", long: LongTexts = CUT
    ) -> None:
        definition_of(tokenizer)
        self.tokenizer, self.long = tokenizer, CUT if max_length is None else long
        self.max_length = max_length or sys.maxsize
        probe = tokenizer.encode(*PROBES[0])
        is_special = probe.special_tokens_mask
        before = is_special.index(0) if 0 in is_special else len(is_special)
        after = is_special[::-1].index(0) if 0 in is_special else 0
        # The special token behind a text also stands between the texts of several columns
        self.separator = probe.tokens[-1] if is_special[-1:] == [1] else "\n"
        capacity, way = self.max_length - before - after, self.long.way
        least = 1 if way == "cut" else HEAD
        if capacity < least:
            rule = f"data.long {way} needs {least} or more tokens of a text in a row"
            raise InputError(f"{rule}, found {capacity} with data.max_length {max_length}; raise it")
        self.head = before + capacity // HEAD
        # Tokens from the start of a window to that of the next, and those that the windows need of a text
        self.step = max(1, capacity * 3 // 4) if way == "windows" else capacity
        self.needed = capacity * (self.long.max_windows if way == "windows" else 1) + MARGIN
        self.side = side if way == "cut" else "right"
        if max_length is not None and way != "head_tail":
            tokenizer.enable_truncation(max_length, stride=capacity - self.step, direction=self.side)

    def encode(self, texts: Texts, place: Place) -> EncodedRows:
        """Return the rows of single texts, or of pairs. Raises InputError for a text that cannot be encoded
        or has no token, naming its `place`, which takes its index; and for pairs, unless texts are cut."""
        are_pairs, way = bool(texts) and not isinstance(texts[0], str), self.long.way
        if are_pairs and way != "cut":
            rule = f"data.long {way} reads single texts"
            remedy = "leave data.long out, or set --data.text_column for single texts"
            raise InputError(f"{place(0)}: {rule}, found a pair; {remedy}")
        if are_pairs:
            separated = list(map(self.separated, texts))
        else:
            separated = [text.replace(BETWEEN_TEXTS, self.separator) for text in texts]
        # The tokenizer gets only the part of a long text that its windows need
        parts, size = separated.copy(), 8 * self.needed
        shortens = not are_pairs and way != "head_tail"
        long = [at for at, text in enumerate(separated) if len(text) > 2 * size] if shortens else []
        for at in long:
            parts[at] = separated[at][slice(size) if self.side == "right" else slice(-size, None)]
        encodings = encode_batch(self.tokenizer, parts, place)
        # A few characters may be many tokens, but many characters few tokens too
        again = [at for at in long if len(encodings[at].overflowing) * self.step < self.needed]
        whole = encode_batch(self.tokenizer, [separated[at] for at in again], lambda at: place(again[at]))
        for at, encoding in zip(again, whole, strict=True):
            encodings[at] = encoding
        windows = [[encoding.ids] for encoding in encodings]
        lengths = np.fromiter(map(len, encodings), np.int32, len(encodings))
        if not lengths.all():
            at = int(lengths.argmin())
            rule = f"each text must have a token, and the tokenizer makes none of {excerpt(texts[at])}"
            raise InputError(f"{place(at)}: {rule}; remove the row, or choose another model")
        is_cut, most = np.zeros(len(encodings), bool), self.long.max_windows if way == "windows" else 1
        # Only a full row may have more tokens, and to ask each of them would take longer than all else here
        for at in np.flatnonzero(lengths >= self.max_length).tolist():
            if way == "head_tail":
                [ids] = windows[at]
                is_cut[at] = len(ids) > self.max_length
                windows[at] = [ids[: self.head] + ids[self.head - self.max_length :]]
            else:
                more = encodings[at].overflowing
                is_cut[at] = len(more) >= most
                windows[at] += [one.ids for one in more[: most - 1]]
        starts = None
        if are_pairs:
            # The types of an encoding are 0, then 1 from the second text on
            starts = np.array([[*encoding.type_ids, 1].index(1) for encoding in encodings], np.int32)
        counts, flat = np.fromiter(map(len, windows), np.int32), list(chain.from_iterable(windows))
        lengths, tokens = np.fromiter(map(len, flat), np.int32), chain.from_iterable(flat)
        return EncodedRows(np.fromiter(tokens, np.int32), lengths, counts, is_cut, starts)

    def _windows(self, encoding: Encoding) -> tuple[list[Encoding], bool]:
        """Return the windows that are read of a text, and whether some tokens are in none, or, of head and
        tail, between them."""
        if self.long.way == "head_tail":
            return [encoding], len(encoding) > self.max_length
        windows = [encoding, *encoding.overflowing]
        most = self.long.max_windows if self.long.way == "windows" else 1
        return windows[:most], len(windows) > most

    def parts_read(self, texts: tuple[str, ...]) -> tuple[list[list[Token]], bool]:
        """Return the tokens that are read of one text, or of a pair: of each window; of the head and of the
        tail, which make one row; else of one part. And whether tokens of the text are in none of them."""
        windows, is_cut = self._windows(self.tokenizer.encode(*map(self.separated, texts)))
        # The place in a text as it was given of each of its characters as the tokenizer got it
        places = [
            [at for at, c in enumerate(text) for _ in (self.separator if c == BETWEEN_TEXTS else c)]
            for text in texts
        ]
        parts = []
        for window in windows:
            parts.append([])
            columns = window.ids, window.type_ids, window.sequence_ids, window.offsets
            for token_id, token_type, number, (start, end) in zip(*columns, strict=True):
                if number is not None and start < end:
                    start, end = places[number][start], places[number][end - 1] + 1
                parts[-1].append(Token(token_id, token_type, number, start, end))
        if is_cut and self.long.way == "head_tail":
            parts = [parts[0][: self.head], parts[0][self.head - self.max_length :]]
        return parts, is_cut

    def characters_read(self, texts: tuple[str, ...]) -> list[list[tuple[int, int]]]:
        """Return which characters of one text, or of each of a pair, become tokens: the first, and the last
        (exclusive), of each range without a gap that is due to the limit of tokens."""
        parts, _ = self.parts_read(texts)
        if self.long.way == "windows":
            parts = [[*chain(*parts)]]
        return [ranges_of(parts, number) for number in range(len(texts))]

    def separated(self, texts: Any) -> Any:
        """Return a text, or a pair, with the separator between the texts of several columns."""
        if isinstance(texts, tuple):
            return tuple(map(self.separated, texts))
        return texts.replace(BETWEEN_TEXTS, self.separator)


def ranges_of(parts: list[list[Token]], text: int) -> list[tuple[int, int]]:
    """Return the first and the last character (exclusive) of a text, 0 or 1, in each part that has any."""
    found = [[token for token in part if token.text == text and token.end > token.start] for part in parts]
    return [(min(t.start for t in part), max(t.end for t in part)) for part in found if part]
