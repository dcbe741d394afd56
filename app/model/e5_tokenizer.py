"""The tokenizer of e5-small-zh: the pieces of multilingual-e5-small that Chinese texts have."""

import re
import unicodedata

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

# Special tokens by transformers' names for what they do
SPECIAL = {
    "bos": "<s>",
    "cls": "<s>",
    "eos": "</s>",
    "sep": "</s>",
    "pad": "<pad>",
    "unk": "<unk>",
    "mask": "<mask>",
}
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # in the order of their new ids
MARK = "▁"  # before a piece that begins a word
HAN_OR_ASCII = re.compile("[\0-\x7f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Categories of Unicode
SYMBOLS = ("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "No", "Cf")
# These letters are kept one by one: they are parts of emoticons and of names
SINGLE_LETTERS = ("HIRAGANA", "KATAKANA", "GREEK", "CYRILLIC")
# Pieces are sorted by frequency; ASCII pieces longer than 2 are kept among these first ones
FREQUENT = 20_000
# NFKC leaves these as they are; the first become spaces, the others are removed
SPACES = "[\\s\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
CONTROLS = "[\\x00-\\x08\\x0b\\x0e-\\x1f\\x7f\\x8f\\x9f]"
# NFKC would turn the wave dash into ~, but the vocabulary has it; so another character stands for it then
WAVE = "\uff5e"
STAND_IN_WAVE = "\ue000"


def kept_pieces(pieces: list[str]) -> np.ndarray:
    """Return the old ids of the pieces to keep, (num_pieces,) int64, in the order of their new ids: special
    tokens, then pieces of Chinese texts. `pieces` are in the order of old ids."""
    first_ids: dict[str, int] = {}
    for old_id, piece in enumerate(pieces):
        first_ids.setdefault(piece, old_id)
    special_ids = [first_ids.pop(token) for token in SPECIAL_TOKENS]
    ordinary_ids = [old_id for piece, old_id in first_ids.items() if is_kept(piece, old_id)]
    return np.array(special_ids + ordinary_ids)


def is_kept(piece: str, rank: int) -> bool:
    """Return whether a piece is in Chinese texts: Chinese characters, punctuation, symbols, emoji, or ASCII.
    `rank` is its place in the vocabulary, the most frequent piece first."""
    text = piece.replace(MARK, "")
    if text.isascii():
        return len(text) <= 2 or rank < FREQUENT
    if len(text) == 1 and unicodedata.name(text, "").startswith(SINGLE_LETTERS):
        return True
    other_characters = HAN_OR_ASCII.sub("", text)
    return all(unicodedata.category(character) in SYMBOLS for character in other_characters)


def build_tokenizer(pieces: list[str], scores: np.ndarray) -> Tokenizer:
    """Return the Unigram tokenizer of pieces in the order of ids, special tokens first, with their scores."""
    vocabulary = list(zip(pieces, scores.tolist(), strict=True))
    unknown_id = SPECIAL_TOKENS.index("<unk>")
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=unknown_id))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(CONTROLS), ""),
            normalizers.Replace(Regex(SPACES), " "),
            normalizers.Replace(WAVE, STAND_IN_WAVE),
            normalizers.NFKC(),
            normalizers.Replace(STAND_IN_WAVE, WAVE),
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
        special_tokens=[
            ("<s>", SPECIAL_TOKENS.index("<s>")),
            ("</s>", SPECIAL_TOKENS.index("</s>")),
        ],
    )
    return tokenizer
