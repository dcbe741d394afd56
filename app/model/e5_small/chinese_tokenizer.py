"""The encoder's tokenizer for Chinese: the pieces that are kept, and their tokenizer.json."""

import unicodedata

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

# Before a piece that begins a word
MARK = "▁"
# In the order of their new ids
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
# Kept one by one: parts of emoticons and of names
SINGLE_LETTERS = ("HIRAGANA", "KATAKANA", "GREEK", "CYRILLIC")
# Pieces are sorted by frequency; ASCII pieces longer than 2 are kept among these first ones
FREQUENT = 20_000
# What is a space, or nothing, in a text; NFKC leaves these as they are.
SPACES = "[\\s\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
CONTROLS = "[\\x00-\\x08\\x0b\\x0e-\\x1f\\x7f\\x8f\\x9f]"
# NFKC would make ~ of the wave dash, which the vocabulary has as it is
WAVE, KEPT_WAVE = "\uff5e", "\ue000"


def is_kept(piece: str, rank: int) -> bool:
    """Return whether a piece is in Chinese texts: Chinese characters, punctuation, symbols, emoji, or ASCII.
    `rank` is its place in the vocabulary, the most frequent piece first."""
    text = piece.replace(MARK, "")
    if all(character.isascii() for character in text):
        return len(text) <= 2 or rank < FREQUENT
    if len(text) == 1 and unicodedata.name(text, "").startswith(SINGLE_LETTERS):
        return True
    return all(map(_is_chinese, text))


def _is_chinese(character: str) -> bool:
    code = ord(character)
    is_han = any(first <= code <= last for first, last in HAN)
    return is_han or character.isascii() or unicodedata.category(character) in SYMBOLS


SYMBOLS = ("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "No", "Cf")


def kept_rows(pieces: list[str]) -> np.ndarray:
    """Return the old ids of the tokens to keep, in the order of new ids: special tokens, then pieces."""
    first = {piece: row for row, piece in reversed(list(enumerate(pieces)))}
    special = [first[token] for token in SPECIAL_TOKENS]
    kept = (
        row
        for row, piece in enumerate(pieces)
        if piece not in SPECIAL_TOKENS and first[piece] == row and is_kept(piece, row)
    )
    return np.array([*special, *kept])


def build_tokenizer(pieces: list[str], scores: np.ndarray) -> Tokenizer:
    """Return the Unigram tokenizer of pieces in the order of ids, special tokens first, with their scores."""
    vocabulary = list(zip(pieces, map(float, scores), strict=True))
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=SPECIAL_TOKENS.index("<unk>")))
    tokenizer.normalizer = normalizers.Sequence(
        [
            *(normalizers.Replace(Regex(CONTROLS), ""), normalizers.Replace(Regex(SPACES), " ")),
            *(normalizers.Replace(WAVE, KEPT_WAVE), normalizers.NFKC(), normalizers.Replace(KEPT_WAVE, WAVE)),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(MARK)]
    )
    tokenizer.decoder = decoders.Metaspace(MARK)
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("<s>", "</s>")],
    )
    return tokenizer
