"""Texts -> the token ids of rows, where long texts are cut, read as head and tail, or read in windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from .long_texts import CUT, HEAD, EncodedRow, LongTexts
from .text_encoder import Place, TextEncoder

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

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
