"""Texts -> the token ids of rows of at most `max_length`: long texts are cut, read as head and tail, or read
in windows, without reading more of a text than these need."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from ..config.data_settings import DataConfig, LongTextMode
from ..errors import InputError, excerpt
from .encoding import check_has_tokens, encode_batch

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# One token in so many is of the head, the others are of the tail
HEAD = 4


class EncodedRow(NamedTuple):
    """The token ids of a row in `windows` of at most `max_length`, special tokens included. `is_cut`: some
    are in none. `second_start`: the tokens before the second text of a pair, or all."""

    windows: list[list[int]]
    is_cut: bool
    second_start: int | None = None


@dataclass(frozen=True)
class LongTexts:
    """The setting `data.long` as `way`, and the maximum windows of a row."""

    way: str = "cut"
    max_windows: int = 8

    def step(self, capacity: int) -> int:
        """Return the tokens from the start of one window to that of the next; each has `capacity`."""
        return max(1, capacity * 3 // 4)


CUT = LongTexts()


def long_texts(settings: DataConfig) -> LongTexts:
    """Return what is configured; settings that a way does not use have no effect on tokens."""
    return LongTexts(settings.long, settings.max_windows) if settings.long != "cut" else CUT


def saved_long_texts(values: dict, path: Path) -> LongTexts:
    """Return what a run has written as `data.long` and `data.max_windows`, defaults where it has none. Raises
    InputError for other values, naming the file, `path`."""
    way, windows = values.get("long", "cut"), values.get("max_windows", 8)
    modes = get_args(LongTextMode)
    if way not in modes or not _is_count(windows):
        raise InputError(
            f"{path}: data.long must be one of {', '.join(modes)}, and data.max_windows a number from 1; "
            f"found {excerpt(way)} and {excerpt(windows)}; fix the file"
        )
    return LongTexts(way, windows) if way != "cut" else CUT


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


# Where the first characters of a text were not enough, so many times as many are read, a few times; then the
# whole text, which may be a single word
GROWTH, ATTEMPTS = 4, 3
BATCH_CHARACTERS = 1 << 22  # characters encoded at once, where windows do not overlap
MAX_ADDED = 64  # characters of an added token, such as [MASK]
# What makes the words of a text from what is near them. Others, such as a pattern of the checkpoint, may look
# further.
LOCAL = {
    *("Sequence", "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip"),
    *("Nmt", "Precompiled", "Prepend", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Metaspace"),
    *("ByteLevel", "Punctuation", "Digits", "CharDelimiterSplit", "UnicodeScripts"),
}
Place = Callable[[int], str]
# It stands between the texts of several columns, and a tokenizer gets its own separator there
BETWEEN_TEXTS = "\u241e"


class TextEncoder:
    """Encodes texts with `tokenizer`, whose truncation it sets; `max_length` None: texts are not cut.

    A tokenizer splits a text into words and each word into tokens, so the words of the first part of a text
    are those of the whole, but for the last few. A part is enough if its tokens fill `max_length` before
    these; else a larger one is encoded, in the end the whole. The token ids are always those of the whole
    text. `side` is where texts are cut. With left, the same is done with their last part, and the offsets of
    an encoding are of that part.

    Where `windows` is above 1, the next windows of a text are the first of the `overflowing` encodings, each
    with `overlap` tokens of the one before; any others may not be those of the whole text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int | None,
        side: str = "right",
        windows: int = 1,
        overlap: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        tokenizer.no_padding()
        tokenizer.no_truncation()
        definition = json.loads(tokenizer.to_str())
        longest = max((len(token["content"]) for token in definition["added_tokens"]), default=0)
        # An added token may be made of as many words before its last character is there
        self.last_words = longest + 4
        parts = [part for name in ("normalizer", "pre_tokenizer") for part in _parts(definition[name])]
        is_local = all(part["type"] in LOCAL for part in parts)
        self.cuts = max_length is not None and longest <= MAX_ADDED and is_local
        self.side = side
        self.windows = windows
        needed, self.batch_characters = max_length or 0, BATCH_CHARACTERS
        if max_length is not None:
            tokenizer.enable_truncation(max_length, stride=overlap, direction=side)
            needed += (windows - 1) * (max_length - overlap)
            self.batch_characters = BATCH_CHARACTERS * (max_length - overlap) // max_length
        self.characters = needed * 3 // 2 + 2 * self.last_words

    def encode(self, texts: list[str] | list[tuple[str, str]], place: Place) -> list[Encoding]:
        """Return the encodings of single texts, or of pairs, which are always read whole. Raises InputError
        for a text that cannot be encoded or has no token, naming its `place`, which takes its index."""
        is_cut = self.cuts and bool(texts) and isinstance(texts[0], str)
        sizes = (
            [self.characters * GROWTH**attempt for attempt in range(ATTEMPTS)] if is_cut else [sys.maxsize]
        )
        short = [index for index, text in enumerate(texts) if len(text) <= sizes[0]]
        left = [index for index, text in enumerate(texts) if len(text) > sizes[0]]
        found = dict(zip(short, self._encode([texts[index] for index in short], short, place), strict=True))
        for size in sizes if left else ():
            parts = [texts[i][:size] if self.side == "right" else texts[i][-size:] for i in left]
            found |= zip(left, self._encode(parts, left, place, with_words=True), strict=True)
            left = [i for i in left if len(texts[i]) > size and not self._is_settled(found[i])]
        found |= zip(left, self._encode([texts[index] for index in left], left, place), strict=True)
        encodings = [found[index] for index in range(len(texts))]
        check_has_tokens(encodings, texts, place)
        return encodings

    def _is_settled(self, encoding: Encoding) -> bool:
        parts = [encoding, *encoding.overflowing]
        if len(parts) <= self.windows:
            return False
        if self.side == "left":
            return min(_words(encoding), default=0) > self.last_words
        last, end = (max(_words(part), default=0) for part in (parts[self.windows - 1], parts[-1]))
        return last + self.last_words < end

    def _encode(
        self, texts: list, indices: Sequence[int], place: Place, with_words: bool = False
    ) -> list[Encoding]:
        """Return the encodings of texts whose places are those of `indices`."""
        encodings: list[Encoding] = []
        for batch in batches_of(texts, self.batch_characters):
            here = indices[len(encodings) :]
            encodings += encode_batch(
                self.tokenizer, batch, lambda index, here=here: place(here[index]), with_words
            )
        return encodings


def _words(encoding: Encoding) -> list[int]:
    """Return the number in the text of each token's word, without special tokens."""
    return [word for word in encoding.word_ids if word is not None]


def batches_of(texts: list, characters: int = BATCH_CHARACTERS) -> Iterator[list]:
    """Yield the texts, or pairs of texts, in batches of about `characters` or one text."""
    start = size = 0
    for index, text in enumerate(texts):
        length = len(text) if isinstance(text, str) else sum(map(len, text))
        if size + length > characters and index > start:
            yield texts[start:index]
            start, size = index, 0
        size += length
    if texts[start:]:
        yield texts[start:]


def _parts(part: Any) -> Iterator[dict]:
    if part:
        yield part
        for inner in part.get("normalizers", []) + part.get("pretokenizers", []):
            yield from _parts(inner)


Texts = list[str] | list[tuple[str, str]]


class Token(NamedTuple):
    """One token: `text` is 0 or 1, of a pair, None for a special token; `start` and `end` (exclusive) are its
    characters there."""

    id: int
    type: int
    text: int | None
    start: int
    end: int


class RowEncoder:
    """Encodes texts with `tokenizer`, whose truncation it sets, as rows of up to `max_length` tokens, or any.

    `side` is where texts are cut; `long` is how texts of more tokens are read otherwise, from their
    beginning. Raises InputError where `long` and `max_length` do not fit.
    """

    def __init__(
        self, tokenizer: Tokenizer, max_length: int | None, side: str = "right", long: LongTexts = CUT
    ) -> None:
        self.long = CUT if max_length is None else long
        self.tail: TextEncoder | None = None
        if self.long.way == "cut":
            self.encoder = TextEncoder(tokenizer, max_length, side)
            return
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.before, self.after = special_counts(tokenizer)
        capacity = max_length - self.before - self.after
        if capacity < HEAD:
            raise InputError(
                f"data.long {self.long.way} needs {HEAD} or more tokens of a text in a row, found {capacity} "
                f"with data.max_length {max_length}; raise it"
            )
        if self.long.way == "windows":
            overlap = capacity - self.long.step(capacity)
            self.encoder = TextEncoder(tokenizer, max_length, windows=self.long.max_windows, overlap=overlap)
            return
        self.head_tokens = capacity // HEAD
        self.tail = TextEncoder(
            type(tokenizer).from_str(tokenizer.to_str()), max_length - self.head_tokens, "left"
        )
        self.encoder = TextEncoder(tokenizer, max_length)

    def encode(self, texts: Texts, place: Place) -> list[EncodedRow]:
        """Return the rows of single texts, or of pairs. Raises InputError for a text that cannot be encoded
        or has no token, naming its `place`, which takes its index; and for pairs, unless texts are cut."""
        if texts and self.long.way != "cut" and not isinstance(texts[0], str):
            raise InputError(
                f"{place(0)}: data.long {self.long.way} reads single texts, found a pair of texts; leave one "
                "out"
            )
        if any(BETWEEN_TEXTS in "".join(text) for text in texts):
            texts = [self._separated(text) for text in texts]
        encodings = self.encoder.encode(texts, place)
        if self.long.way == "windows":
            most = self.long.max_windows
            return [
                EncodedRow([e.ids, *(part.ids for part in e.overflowing)][:most], len(e.overflowing) >= most)
                for e in encodings
            ]
        if texts and not isinstance(texts[0], str):
            return [EncodedRow([e.ids], bool(e.overflowing), _second_start(e)) for e in encodings]
        rows = [EncodedRow([encoding.ids], bool(encoding.overflowing)) for encoding in encodings]
        return rows if self.tail is None else self._with_tails(self.tail, rows, texts, place)

    def characters_read(self, texts: tuple[str, ...]) -> list[list[tuple[int, int]]]:
        """Return which characters of one text, or of each of a pair, become tokens: the first, and the last
        (exclusive), of each range without a gap that is due to the limit of tokens."""
        parts, _ = self.parts_read(texts)
        if self.long.way == "windows":
            parts = [[token for window in parts for token in window]]
        return [ranges_of(parts, number) for number in range(len(texts))]

    def parts_read(self, texts: tuple[str, ...]) -> tuple[list[list[Token]], bool]:
        """Return the tokens that are read of one text, or of a pair: of each window; of the head and of the
        tail, which make one row; else of one part. And whether tokens of the text are in none of them."""
        parts, is_cut = self._parts_read(self._separated(texts))
        if BETWEEN_TEXTS in "".join(texts):
            parts = [[self._placed(token, texts) for token in part] for part in parts]
        return parts, is_cut

    @cached_property
    def separator(self) -> str:
        """The special token behind a text, which also stands between the texts of several columns."""
        encoding = self.encoder.tokenizer.encode("好")
        return encoding.tokens[-1] if encoding.special_tokens_mask[-1] else "\n"

    def _separated(self, texts: Any) -> Any:
        if isinstance(texts, tuple):
            return tuple(map(self._separated, texts))
        return texts.replace(BETWEEN_TEXTS, self.separator)

    def _placed(self, token: Token, texts: tuple[str, ...]) -> Token:
        """Return a token of separated texts with its characters in the texts as they were given."""
        if token.text is None:
            return token
        pieces = texts[token.text].split(BETWEEN_TEXTS)

        def original(place: int) -> int:
            before = 0
            for piece in pieces:
                if place <= len(piece):
                    break
                place = max(0, place - len(piece) - len(self.separator))
                before += len(piece) + 1
            return before + place

        return token._replace(start=original(token.start), end=original(token.end))

    def _parts_read(self, texts: tuple[str, ...]) -> tuple[list[list[Token]], bool]:
        whole = self.encoder.tokenizer.encode(*texts)
        if self.long.way == "windows":
            windows = [whole, *whole.overflowing]
            most = self.long.max_windows
            return [_tokens(window) for window in windows[:most]], len(windows) > most
        if self.tail is None or not whole.overflowing:
            return [_tokens(whole)], bool(whole.overflowing)
        head, tail = _tokens(whole), _tokens(self.tail.tokenizer.encode(*texts))
        return [head[: self.before + self.head_tokens], tail[self.before :]], True

    def _with_tails(
        self, encoder: TextEncoder, rows: list[EncodedRow], texts: Texts, place: Place
    ) -> list[EncodedRow]:
        """Return rows that were cut at their end with the tail of their text after the head."""
        long = [index for index, row in enumerate(rows) if row.is_cut]
        tails = encoder.encode([texts[index] for index in long], lambda index: place(long[index]))
        for index, tail in zip(long, tails, strict=True):
            head = rows[index].windows[0][: self.before + self.head_tokens]
            rows[index] = EncodedRow([head + tail.ids[self.before :]], True)
        return rows


def special_counts(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return how many special tokens are before and after a text; `tokenizer` neither cuts nor pads."""
    mask = tokenizer.encode("好").special_tokens_mask
    before = mask.index(0) if 0 in mask else len(mask)
    return before, mask[::-1].index(0) if 0 in mask else 0


def ranges_of(parts: list[list[Token]], text: int) -> list[tuple[int, int]]:
    """Return the first and the last character (exclusive) of a text, 0 or 1, in each part that has any."""
    found = [[token for token in part if token.text == text and token.end > token.start] for part in parts]
    return [(min(t.start for t in part), max(t.end for t in part)) for part in found if part]


def _tokens(encoding: Encoding) -> list[Token]:
    columns = encoding.ids, encoding.type_ids, encoding.sequence_ids, encoding.offsets
    return [Token(id, type, text, *at) for id, type, text, at in zip(*columns, strict=True)]


def _second_start(encoding: Encoding) -> int:
    types = encoding.type_ids
    return types.index(1) if 1 in types else len(types)
