"""Chinese words over tokens: python -m pytest tests/data/test_chinese_words.py"""

import sys

import pytest
from tokenizers.processors import ByteLevel

from app.config.schema import DataConfig
from app.data.chinese_words import continued, open_words
from app.data.dataset import open_dataset
from app.data.tokens import open_store
from app.errors import InputError
from tests.tiny import tiny_tokenizer


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "posts.txt"
    path.write_text("我们喜欢苹果。\n我们 love 火锅abcdef\n", encoding="utf-8")
    return opened(path), f"{path}-cache"


def opened(path, **settings):
    sizes = {"dev_size": 0, "test_size": 0, "cache_dir": f"{path}-cache"}
    config = DataConfig(task="masked_language_modelling", train=str(path), **sizes, **settings)
    return open_dataset(config).splits["train"].table


def test_tokens_of_a_word_belong_together(texts):
    pytest.importorskip("rjieba")
    table, cache = texts
    tokenizer = tiny_tokenizer(characters="我们喜欢苹果火锅abcdefglv")
    store = open_store(table, tokenizer, 32, cache)
    found = open_words(table, store, tokenizer, cache)
    assert len(found) == len(store.tokens)
    first = found[: store.offsets[1]].tolist()
    # [CLS] 我们 喜欢 苹果 。 [SEP]
    assert first == [0, 0, 1, 0, 1, 0, 1, 0, 0]


def test_texts_of_several_columns_have_the_separator_of_the_tokenizer_between_them(write):
    pytest.importorskip("rjieba")
    path = write("posts.csv", "标题,正文\n我们,喜欢苹果\n")
    table, tokenizer = opened(path, text_column=["标题", "正文"]), tiny_tokenizer(characters="我们喜欢苹果")
    # Without a special token, a new line stands there, of which there is no token
    tokenizer.backend_tokenizer.post_processor = ByteLevel()
    store = open_store(table, tokenizer, 32, f"{path}-cache")
    found = open_words(table, store, tokenizer, f"{path}-cache")
    assert found.tolist() == [0, 1, 0, 1, 0, 1]
    assert len(store.tokens) == 6


def test_a_token_of_two_words_belongs_to_the_first_and_special_tokens_to_none():
    class Encoding:
        offsets = [(0, 0), (0, 1), (1, 3), (3, 4), (0, 0)]
        special_tokens_mask = [1, 0, 0, 0, 1]

    assert continued(["ab", "cd"], Encoding).tolist() == [0, 0, 1, 0, 0]


def test_without_rjieba_the_error_says_how_to_install_it(texts, monkeypatch):
    from importlib.metadata import PackageNotFoundError

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sys.modules["app.data.chinese_words"], "version", missing)
    table, cache = texts
    tokenizer = tiny_tokenizer()
    store = open_store(table, tokenizer, 32, cache)
    with pytest.raises(InputError, match="pip install -r requirements/words.txt"):
        open_words(table, store, tokenizer, cache)
