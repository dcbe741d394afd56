"""Long texts are cut before they are encoded, and their tokens stay the same: python -m pytest
tests/data/test_text_encoder.py"""

import random
import resource
import subprocess
import sys

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from app.data.long_texts import TextEncoder, batches_of

SPECIAL = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["好", "今天真开心", "a", "word", "don't ", " ", "   ", "\u3000", "\n\n", "12345678", "ﷺ", "e\u0301", "\u0301" * 9, "x" * 110,
          "[MASK]", "[MAS", "  [MASK]  ", "😀👨‍👩‍👧", "．。！", "ΑΣ", "\u200b", "\x00", "ｶﾞ", "한국어", "ไทย", "," * 40, " " * 60]  # fmt: skip
TRAINING = [
    "今天真开心 word don't word a good day",
    "好好学习，天天向上。 1234 한국어",
    "the words of a text " * 3,
]


def long_text(draw: random.Random) -> str:
    favourites = draw.choices(PIECES, k=draw.choice([1, 2, 5, 20]))
    return "".join(draw.choices(favourites, k=draw.choice([1, 30, 90])))


def trained(model, trainer, pre_tokenizer, normalizer=None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.add_special_tokens([*SPECIAL[:4], AddedToken("[MASK]", lstrip=True, rstrip=True)])
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return tokenizer


def word_piece() -> Tokenizer:
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False)
    model = models.WordPiece(unk_token="[UNK]")
    return trained(model, trainer, pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())


def byte_pairs() -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, show_progress=False, initial_alphabet=alphabet
    )
    return trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))


def unigram() -> Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False, max_piece_length=8
    )
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return trained(models.Unigram(), trainer, split, normalizers.NFKC())


def pattern() -> Tokenizer:
    """Words that depend on what is far behind them."""
    trainer = trainers.WordLevelTrainer(vocab_size=99, special_tokens=SPECIAL, show_progress=False)
    split = pre_tokenizers.Split(Regex(r"^[\s\S]*(?=z)|[\s\S]"), "isolated")
    return trained(models.WordLevel(unk_token="[UNK]"), trainer, split)


TOKENIZERS = [word_piece, byte_pairs, unigram, pattern]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("make", TOKENIZERS, ids=lambda make: make.__name__)
def test_tokens_are_those_of_the_whole_text(make, side):
    draw = random.Random(f"{make.__name__} {side}")
    plain = make()
    cutting = Tokenizer.from_str(plain.to_str())
    for max_length in (16, 64):
        plain.enable_truncation(max_length, direction=side)
        texts = [long_text(draw) for _ in range(20)] + ["好" * 900 + "z"]
        batches = [texts] + [list(zip(texts[:9], texts[9:18], strict=True))] * (max_length == 64)
        for batch in batches:
            encodings = TextEncoder(cutting, max_length, side).encode(batch, str)
            for expected, found in zip(plain.encode_batch_fast(batch), encodings, strict=True):
                assert found.ids == expected.ids
                assert found.type_ids == expected.type_ids
                assert bool(found.overflowing) == bool(expected.overflowing)


def test_no_more_of_a_long_text_is_read_than_needed(monkeypatch):
    read = []
    encoder = TextEncoder(word_piece(), 16)
    encode = encoder._encode
    monkeypatch.setattr(
        encoder,
        "_encode",
        lambda texts, *others, **words: read.extend(map(len, texts)) or encode(texts, *others, **words),
    )
    for text, most in (("好" * 10**6, 100), ("a good day " * 10**5, 500)):
        read.clear()
        encoder.encode([text], str)
        assert sum(read) <= most


def test_texts_are_not_cut_without_a_length():
    assert len(TextEncoder(word_piece(), None).encode(["好" * 5000], str)[0].ids) == 5002


def test_batches_are_bounded_by_characters():
    texts = ["a" * 3_000_000, "b" * 2_000_000, "c", ("d" * 3_000_000, "e" * 3_000_000), "f"]
    assert list(batches_of(texts)) == [[texts[0]], texts[1:3], [texts[3]], [texts[4]]]
    assert list(batches_of([])) == []


LINE = """
import resource
from tests.data.test_text_encoder import TextEncoder, word_piece
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
encoder = TextEncoder(word_piece(), 128)
assert len(encoder.encode(["今天真开心" * 3_000_000, "短"], str)[0].ids) == 128
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_line_of_fifty_megabytes_takes_little_memory():
    assert resource.getpagesize()
    output = subprocess.run([sys.executable, "-c", LINE], check=True, capture_output=True, text=True).stdout
    # kilobytes; 45 MB of UTF-8 took gigabytes
    assert int(output) < 400_000
