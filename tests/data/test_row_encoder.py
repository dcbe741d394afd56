"""Rows of long texts: cut at either side, head and tail, windows: python -m pytest
tests/data/test_row_encoder.py"""

import random
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from app.data.tokens import CUT, EncodedRows, LongTexts, RowEncoder, parts_of, saved_long_texts
from app.errors import InputError

SPECIAL = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["好", "今天真开心", "a", "word", "don't ", " ", "   ", "\u3000", "\n\n", "12345678", "ﷺ", "e\u0301", "\u0301" * 9, "x" * 110,
          "[MASK]", "[MAS", "  [MASK]  ", "😀👨‍👩‍👧", "．。！", "ΑΣ", "\u200b", "\x00", "ｶﾞ", "한국어", "ไทย", "," * 40, " " * 60]  # fmt: skip
TRAINING = [
    "今天真开心 word don't word a good day",
    "好好学习，天天向上。 1234 한국어",
    "the words of a text " * 3,
]
HEAD_TAIL = LongTexts("head_tail")


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


def long_texts_of(name: str) -> list[str]:
    """Return texts with words of usual lengths: what is cut off a word of thousands of characters may change
    its tokens."""
    draw = random.Random(name)
    favourites = [["好", "word ", *draw.choices(PIECES, k=draw.choice([1, 5, 20]))] for _ in range(20)]
    texts = ["".join(draw.choices(pieces, k=draw.choice([1, 30, 90, 900]))) for pieces in favourites]
    return [*texts, "好，" * 4500 + "z", "好", "今天真开心word " * 1600, "a " * 9000]


def wanted_windows(ids: list[int], capacity: int, side: str, long: LongTexts) -> list[list[int]]:
    """Return all windows of the tokens of a text, by definition."""
    if len(ids) <= capacity:
        return [ids]
    if long.way == "head_tail":
        return [ids[: capacity // 4] + ids[len(ids) - (capacity - capacity // 4) :]]
    if long.way == "windows":
        step = capacity * 3 // 4
        count = 1 + -(-(len(ids) - capacity) // step)
        return [ids[at * step : at * step + capacity] for at in range(count)]
    return [ids[:capacity] if side == "right" else ids[-capacity:]]


def windows_of(rows: EncodedRows) -> list[list[list[int]]]:
    """Return the tokens of each window of each row."""
    windows = iter(parts_of(rows.tokens, rows.lengths))
    return [[next(windows).tolist() for _ in range(count)] for count in rows.counts]


@pytest.mark.parametrize("make", [word_piece, byte_pairs, unigram], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("max_length", "side", "long"),
    [
        *((length, side, CUT) for length in (4, 16, 63) for side in ("right", "left")),
        *((length, "right", HEAD_TAIL) for length in (16, 63)),
        *((length, "right", LongTexts("windows", n)) for length, n in ((16, 8), (16, 3), (34, 5), (64, 1))),
    ],
)
def test_rows_are_those_of_the_whole_text(make, max_length, side, long):
    tokenizer, texts = make(), long_texts_of(make.__name__)
    rows = RowEncoder(Tokenizer.from_str(tokenizer.to_str()), max_length, side, long).encode(texts, str)
    for text, windows, is_cut in zip(texts, windows_of(rows), rows.is_cut, strict=True):
        first, *ids, last = tokenizer.encode(text).ids
        wanted = wanted_windows(ids, max_length - 2, side, long)
        most = long.max_windows if long.way == "windows" else 1
        assert windows == [[first, *window, last] for window in wanted[:most]]
        assert is_cut == (len(wanted) > most or (long.way != "windows" and len(ids) > max_length - 2))


@pytest.mark.parametrize("side", ["right", "left"])
def test_pairs_are_cut_as_the_tokenizer_cuts_them(side):
    tokenizer, texts = word_piece(), long_texts_of("pairs")
    pairs = list(zip(texts[:12], texts[12:24], strict=True))
    rows = RowEncoder(Tokenizer.from_str(tokenizer.to_str()), 64, side).encode(pairs, str)
    tokenizer.enable_truncation(64, direction=side)
    expected = tokenizer.encode_batch(pairs)
    assert windows_of(rows) == [[one.ids] for one in expected]
    assert rows.is_cut.tolist() == [bool(one.overflowing) for one in expected]
    assert rows.second_starts.tolist() == [len(one.ids) - sum(one.type_ids) for one in expected]


@pytest.mark.parametrize("long", [CUT, LongTexts("windows", 4)])
def test_no_more_of_a_long_text_is_read_than_needed(long):
    encoder, read = RowEncoder(word_piece(), 16, "right", long), []
    encode = encoder.tokenizer.encode_batch_fast
    encoder.tokenizer = SimpleNamespace(encode_batch_fast=lambda texts: read.extend(texts) or encode(texts))
    encoder.encode(["好" * 10**6, "a good day " * 10**5], str)
    assert 0 < sum(map(len, read)) < 12_000


def test_texts_are_not_cut_without_a_length():
    assert len(RowEncoder(word_piece(), None).encode(["好" * 5000], str).tokens) == 5002


@pytest.mark.parametrize("way", ["head_tail", "windows"])
def test_pairs_are_refused_unless_texts_are_cut(way):
    with pytest.raises(InputError, match=f"^line 7: data.long {way} reads single texts, found a pair"):
        RowEncoder(word_piece(), 16, "right", LongTexts(way)).encode([("好", "今")], lambda index: "line 7")


@pytest.mark.parametrize(("long", "length", "least", "found"), [(HEAD_TAIL, 5, 4, 3), (CUT, 2, 1, 0)])
def test_a_length_that_leaves_tokens_out(long, length, least, found):
    wanted = f"data.long {long.way} needs {least} or more tokens of a text in a row, found {found}"
    with pytest.raises(InputError, match=wanted):
        RowEncoder(word_piece(), length, "right", long)


def test_settings_of_a_run_folder(tmp_path):
    assert saved_long_texts({}, tmp_path) == CUT
    written = {"long": "windows", "max_windows": 3}
    assert saved_long_texts(written, tmp_path) == LongTexts("windows", 3)
    for name, value in (("long", "whole"), ("max_windows", 0), ("max_windows", "9"), ("max_windows", True)):
        with pytest.raises(
            InputError, match="data.long must be one of cut, head_tail, windows, and data.max_windows"
        ):
            saved_long_texts(written | {name: value}, tmp_path)
