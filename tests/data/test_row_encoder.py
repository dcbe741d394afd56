"""Rows of long texts: cut, head and tail, windows: python -m pytest tests/data/test_row_encoder.py"""

import random
import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from app.data.long_texts import CUT, LongTexts, RowEncoder, saved_long_texts
from app.errors import InputError
from tests.data.test_text_encoder import TOKENIZERS, long_text, word_piece

LONG = "今天真开心word " * 600


def texts_of(name: str) -> list[str]:
    draw = random.Random(name)
    return [long_text(draw) for _ in range(20)] + ["好" * 900 + "z", "好", LONG]


def whole(tokenizer: Tokenizer, text: str) -> tuple[int, list[int], int]:
    """Return all tokens of a text without special tokens, between the two special tokens of these
    tokenizers."""
    first, *ids, last = tokenizer.encode(text).ids
    return first, ids, last


@pytest.mark.parametrize("make", TOKENIZERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("max_length", [16, 63])
def test_head_and_tail_are_those_of_the_whole_text(make, max_length):
    texts, tokenizer = texts_of(make.__name__), make()
    rows = RowEncoder(
        Tokenizer.from_str(tokenizer.to_str()), max_length, "right", LongTexts("head_tail")
    ).encode(texts, str)
    head = (max_length - 2) // 4
    tail = max_length - 2 - head
    for text, row in zip(texts, rows, strict=True):
        first, ids, last = whole(tokenizer, text)
        is_long = len(ids) > max_length - 2
        wanted = ids[:head] + ids[-tail:] if is_long else ids
        assert row.windows == [[first, *wanted, last]]
        assert row.is_cut == is_long


@pytest.mark.parametrize("make", TOKENIZERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("max_length", "most"), [(16, 8), (16, 3), (34, 5), (64, 1)])
def test_windows_are_those_of_the_whole_text(make, max_length, most):
    texts, tokenizer = texts_of(make.__name__), make()
    rows = RowEncoder(
        Tokenizer.from_str(tokenizer.to_str()), max_length, "right", LongTexts("windows", most)
    ).encode(texts, str)
    capacity = max_length - 2
    step = capacity * 3 // 4
    for text, row in zip(texts, rows, strict=True):
        first, ids, last = whole(tokenizer, text)
        count = 1 + max(0, -(-(len(ids) - capacity) // step))
        wanted = [[first, *ids[at * step : at * step + capacity], last] for at in range(min(count, most))]
        assert row.windows == wanted
        assert row.is_cut == (count > most)
        if not row.is_cut:
            # Nothing is left out
            assert wanted[-1][1:-1] == ids[-len(wanted[-1]) + 2 :]


def test_no_more_of_a_long_text_is_read_than_needed(monkeypatch):
    read = []
    for long, most in ((LongTexts("head_tail"), 250), (LongTexts("windows", 4), 250)):
        encoder = RowEncoder(word_piece(), 16, "right", long)
        for part in filter(None, (encoder.encoder, encoder.tail)):
            encode = part._encode
            monkeypatch.setattr(
                part,
                "_encode",
                lambda texts, *o, encode=encode, **w: read.extend(map(len, texts)) or encode(texts, *o, **w),
            )
        read.clear()
        encoder.encode(["好" * 10**6], str)
        assert 0 < sum(read) <= most


def test_pairs_are_refused_unless_texts_are_cut():
    pair = [("好", "今天真开心")]
    [row] = RowEncoder(word_piece(), 16).encode(pair, str)
    assert row.second_start == 3
    for way in ("head_tail", "windows"):
        with pytest.raises(InputError, match=f"^line 7: data.long {way} reads single texts, found a pair"):
            RowEncoder(word_piece(), 16, "right", LongTexts(way)).encode(pair, lambda index: "line 7")


def test_a_length_that_leaves_tokens_out():
    with pytest.raises(
        InputError, match="data.long head_tail needs 4 or more tokens of a text in a row, found 3"
    ):
        RowEncoder(word_piece(), 5, "right", LongTexts("head_tail"))


def test_settings_of_a_run_folder(tmp_path):
    assert saved_long_texts({}, tmp_path) == CUT
    assert saved_long_texts({"long": "cut", "max_windows": 3}, tmp_path) == CUT
    written = {"long": "windows", "max_windows": 3}
    assert saved_long_texts(written, tmp_path) == LongTexts("windows", 3)
    for name, value in (("long", "whole"), ("max_windows", 0), ("max_windows", "9"), ("max_windows", True)):
        with pytest.raises(
            InputError, match="data.long must be one of cut, head_tail, windows, and data.max_windows"
        ):
            saved_long_texts(written | {name: value}, tmp_path)


LINE = """
import resource
from app.data.long_texts import LongTexts
from app.data.long_texts import RowEncoder
from tests.data.test_text_encoder import word_piece
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for long in (LongTexts("head_tail"), LongTexts("windows"), LongTexts("windows", 10_000)):
    encoder = RowEncoder(word_piece(), 128, "right", long)
    for text in ("今天真开心" * 20_000, "a" * 100_000, "a b" * 33_000):
        rows = encoder.encode([text] * 3, str)
        assert all(0 < len(window) <= 128 for row in rows for window in row.windows)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_texts_of_a_hundred_thousand_characters_take_little_memory():
    output = subprocess.run(
        [sys.executable, "-c", LINE], check=True, capture_output=True, text=True, timeout=300
    ).stdout
    # Kilobytes
    assert int(output) < 800_000
