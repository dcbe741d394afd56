"""Texts -> the token ids of rows of at most `max_length`, with anybody's tokenizer: long texts are cut, read
as head and tail, or read in windows, without reading more of a text than these need. Where a tokenizer fails,
even by a panic in Rust, is an input error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from ..config.data_settings import LongTextMode
from ..errors import InputError, excerpt, first_line, listed

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

REMEDY = "repair its tokenizer.json, or choose another model"
# Chinese, Latin, a digit, punctuation, a character that no vocabulary has, and a pair
PROBES = [("好a1。",), ("\ue000",), ("好", "好a")]
HEAD = 4  # one token in so many is of the head, the others are of the tail
MARGIN = 128  # tokens before the place where a text is cut that may be others than those of the whole text
# It stands between the texts of several columns, and a tokenizer gets its own separator there
BETWEEN_TEXTS = "\u241e"
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
    if not texts:
        return []
    with guarded(f"{place(0)}, or one of the {len(texts):,} from there: the tokenizer cannot encode a text"):
        return tokenizer.encode_batch_fast(texts)


class EncodedRow(NamedTuple):
    """The token ids of a row in `windows` of at most `max_length`, special tokens included. `is_cut`: some
    are in none. `second_start`: the tokens before the second text of a pair, or all."""

    windows: list[list[int]]
    is_cut: bool
    second_start: int | None = None


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


def long_texts(way: str, max_windows: int) -> LongTexts:
    """Return what is configured; a setting that a way does not use has no effect on tokens."""
    return LongTexts(way, max_windows) if way == "windows" else LongTexts(way)


def saved_long_texts(values: dict, path: Path) -> LongTexts:
    """Return what a run has written as `data.long` and `data.max_windows`, defaults where it has none. Raises
    InputError for other values, naming the file, `path`."""
    way, windows = (
        values.get(name, default) for name, default in zip(("long", "max_windows"), CUT, strict=True)
    )
    modes = get_args(LongTextMode)
    if way not in modes or type(windows) is not int or windows < 1:
        rule = f"data.long must be one of {', '.join(modes)}, and data.max_windows a number from 1"
        raise InputError(f"{path}: {rule}, found {excerpt(way)} and {excerpt(windows)}; fix the file")
    return long_texts(way, windows)


class RowEncoder:
    """Encodes texts with `tokenizer`, whose truncation it sets, as rows of up to `max_length` tokens, or any:
    cut at a `side`, or read as `long` says. Of a long text only the characters that these rows need are
    tokenised. Raises InputError where `long` and `max_length` do not fit."""

    def __init__(
        self, tokenizer: Tokenizer, max_length: int | None, side: str = "right", long: LongTexts = CUT
    ) -> None:
        definition_of(tokenizer)
        self.tokenizer, self.max_length, self.side = tokenizer, max_length, side
        self.long = CUT if max_length is None else long
        probe = tokenizer.encode(*PROBES[0])
        is_special = probe.special_tokens_mask
        self.before = is_special.index(0) if 0 in is_special else len(is_special)
        self.after = is_special[::-1].index(0) if 0 in is_special else 0
        # The special token behind a text also stands between the texts of several columns
        self.separator = probe.tokens[-1] if is_special[-1:] == [1] else "\n"
        self.capacity = (max_length or sys.maxsize) - self.before - self.after
        least = 1 if self.long.way == "cut" else HEAD
        if self.capacity < least:
            rule = f"data.long {self.long.way} needs {least} or more tokens of a text in a row"
            raise InputError(f"{rule}, found {self.capacity} with data.max_length {max_length}; raise it")
        self.step = max(1, self.capacity * 3 // 4)  # tokens from the start of a window to that of the next
        windows = self.long.max_windows if self.long.way == "windows" else 1
        self.needed = min(self.capacity + (windows - 1) * self.step + MARGIN, sys.maxsize // 16)

    def encode(self, texts: Texts, place: Place) -> list[EncodedRow]:
        """Return the rows of single texts, or of pairs. Raises InputError for a text that cannot be encoded
        or has no token, naming its `place`, which takes its index; and for pairs, unless texts are cut."""
        are_pairs = bool(texts) and not isinstance(texts[0], str)
        if are_pairs and self.long.way != "cut":
            rule = f"data.long {self.long.way} reads single texts"
            raise InputError(f"{place(0)}: {rule}, found a pair of texts; leave one out")
        separated = [self.separated(text) for text in texts]
        if are_pairs:
            encodings = encode_batch(self._pairs, separated, place)
            # The types of an encoding are 0, then 1 from the second text on
            rows = [EncodedRow([e.ids], bool(e.overflowing), [*e.type_ids, 1].index(1)) for e in encodings]
        else:
            rows = [EncodedRow(*self._windows(ids)) for ids in self._ids(separated, place)]
        for index, row in enumerate(rows):
            if not row.windows[0]:
                rule = f"each text must have a token, and the tokenizer makes none of {excerpt(texts[index])}"
                raise InputError(f"{place(index)}: {rule}; remove the row, or choose another model")
        return rows

    def parts_read(self, texts: tuple[str, ...]) -> tuple[list[list[Token]], bool]:
        """Return the tokens that are read of one text, or of a pair: of each window; of the head and of the
        tail, which make one row; else of one part. And whether tokens of the text are in none of them."""
        whole = (self._pairs if len(texts) == 2 else self.tokenizer).encode(*self.separated(texts))
        positions = list(range(len(whole.ids)))
        if len(texts) == 2:
            parts, is_cut = [positions], bool(whole.overflowing)
        else:
            parts, is_cut = self._windows(positions)
        if self.long.way == "head_tail" and is_cut:
            end = self.before + self.capacity // HEAD
            parts = [parts[0][:end], parts[0][end:]]
        # The place in a text as it was given of each of its characters as the tokenizer got it
        places = [
            [at for at, c in enumerate(text) for _ in (self.separator if c == BETWEEN_TEXTS else c)]
            for text in texts
        ]

        def token(at: int) -> Token:
            number, (start, end) = whole.sequence_ids[at], whole.offsets[at]
            if number is not None and start < end:
                start, end = places[number][start], places[number][end - 1] + 1
            return Token(whole.ids[at], whole.type_ids[at], number, start, end)

        return [[token(at) for at in part] for part in parts], is_cut

    def characters_read(self, texts: tuple[str, ...]) -> list[list[tuple[int, int]]]:
        """Return which characters of one text, or of each of a pair, become tokens: the first, and the last
        (exclusive), of each range without a gap that is due to the limit of tokens."""
        parts, _ = self.parts_read(texts)
        if self.long.way == "windows":
            parts = [[*chain(*parts)]]
        return [ranges_of(parts, number) for number in range(len(texts))]

    @cached_property
    def _pairs(self) -> Tokenizer:
        """A tokenizer that cuts pairs of texts, the longer one first."""
        tokenizer = type(self.tokenizer).from_str(self.tokenizer.to_str())
        if self.max_length is not None:
            tokenizer.enable_truncation(self.max_length, direction=self.side)
        return tokenizer

    def separated(self, texts: Any) -> Any:
        """Return a text, or a pair, with the separator between the texts of several columns."""
        if isinstance(texts, tuple):
            return tuple(map(self.separated, texts))
        return texts.replace(BETWEEN_TEXTS, self.separator)

    def _ids(self, texts: list[str], place: Place) -> list[list[int]]:
        """Return the token ids of each text; of a long one at least those at its beginning, or at its end, or
        both, that its rows may have."""
        size, ids = 8 * self.needed, {}
        starts = self.long.way != "cut" or self.side == "right"
        parts = [slice(size)] * starts + [slice(-size, None)] * (self.long.way == "head_tail" or not starts)
        long = [index for index, text in enumerate(texts) if len(text) > 2 * size]
        of_parts = [
            encode_batch(self.tokenizer, [texts[at][part] for at in long], lambda at: place(long[at]))
            for part in parts
        ]
        for index, encodings in zip(long, zip(*of_parts, strict=True), strict=True):
            # A few characters may be many tokens, but many characters few tokens too
            if min(len(encoding.ids) for encoding in encodings) >= self.needed:
                ids[index] = [token for encoding in encodings for token in encoding.ids]
        whole = [index for index in range(len(texts)) if index not in ids]
        encodings = encode_batch(self.tokenizer, [texts[at] for at in whole], lambda at: place(whole[at]))
        ids |= {index: encoding.ids for index, encoding in zip(whole, encodings, strict=True)}
        return [ids[index] for index in range(len(texts))]

    def _windows(self, tokens: list[int]) -> tuple[list[list[int]], bool]:
        """Return the tokens of each window of a text with these, special tokens included, and whether there
        are more."""
        end = len(tokens) - self.after
        first, body, last = tokens[: self.before], tokens[self.before : end], tokens[end:]
        if len(body) <= self.capacity:
            return [tokens], False
        if self.long.way == "windows":
            starts = range(0, len(body) - self.capacity + self.step, self.step)
            most = self.long.max_windows
            windows = [first + body[start : start + self.capacity] + last for start in starts[:most]]
            return windows, len(starts) > most
        if self.long.way == "head_tail":
            head = self.capacity // HEAD
            return [first + body[:head] + body[head - self.capacity :] + last], True
        kept = body[: self.capacity] if self.side == "right" else body[-self.capacity :]
        return [first + kept + last], True


def ranges_of(parts: list[list[Token]], text: int) -> list[tuple[int, int]]:
    """Return the first and the last character (exclusive) of a text, 0 or 1, in each part that has any."""
    found = [[token for token in part if token.text == text and token.end > token.start] for part in parts]
    return [(min(t.start for t in part), max(t.end for t in part)) for part in found if part]
