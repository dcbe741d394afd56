"""Texts -> encodings of at most `max_length` tokens, without reading more of a text than these need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .encoding import check_has_tokens, encode_batch

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# Times as many characters, where the first ones were not enough
GROWTH = 4
# After which the whole text is encoded: it may be a single word
ATTEMPTS = 3
# Of a first attempt
MAX_CHARACTERS = 1 << 16
# Encoded at once, where windows do not overlap
BATCH_CHARACTERS = 1 << 22
# Characters of an added token, such as [MASK]
MAX_ADDED = 64
# What makes the words of a text from what is near them. Others, such as a pattern of the checkpoint, may look
# further.
LOCAL = {
    *("Sequence", "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip"),
    *("Nmt", "Precompiled", "Prepend", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Metaspace"),
    *("ByteLevel", "Punctuation", "Digits", "CharDelimiterSplit", "UnicodeScripts"),
}
Place = Callable[[int], str]


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
        if self.cuts and texts and isinstance(texts[0], str):
            encodings = self._encode_parts(texts, place)
        else:
            encodings = self._encode(texts, range(len(texts)), place)
        check_has_tokens(encodings, texts, place)
        return encodings

    def _encode_parts(self, texts: list[str], place: Place) -> list[Encoding]:
        size = self.characters
        short = [index for index, text in enumerate(texts) if len(text) <= size]
        unsettled = [index for index, text in enumerate(texts) if len(text) > size]
        found = self._encode([texts[index] for index in short], short, place)
        encodings = dict(zip(short, found, strict=True))
        num_long = len(unsettled)
        for attempt in range(ATTEMPTS):
            parts = [texts[i][:size] if self.side == "right" else texts[i][-size:] for i in unsettled]
            encodings |= zip(unsettled, self._encode(parts, unsettled, place, with_words=True), strict=True)
            unsettled = [i for i in unsettled if len(texts[i]) > size and not self._is_settled(encodings[i])]
            if attempt == 0 and 2 * len(unsettled) > num_long:
                # Words are longer here than usual
                self.characters = min(self.characters * GROWTH, MAX_CHARACTERS)
            size *= GROWTH
        whole = [texts[index] for index in unsettled]
        encodings |= zip(unsettled, self._encode(whole, unsettled, place), strict=True)
        return [encodings[index] for index in range(len(texts))]

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
