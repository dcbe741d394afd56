"""The vocabulary of a model with random weights, and words before texts: python -m pytest
tests/data/test_tokenizer.py"""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, BertTokenizer

from app.config.schema import ModelConfig
from app.data.long_texts import RowEncoder
from app.data.read import ReadOptions
from app.data.table import Table, build_table
from app.data.tokenizer import (
    SPECIAL_TOKENS,
    build_vocabulary,
    gb2312_characters,
    load_tokenizer,
    set_prefix,
)
from app.errors import InputError
from tests.saved_classifier import save_checkpoint

# U+3400, U+20000 and U+2CEAF are first or last in ranges of Chinese characters; `〇` is in none of them.
SPLIT_OFF = "中\u3400\U00020000\U0002ceaf，。“…—·!$^~「٪"
IN_WORDS = "aéß7７яあアー한ก😀❤€＋→②℃々〇～\u200d"
# The tables of `tokenizers` and of Python differ here; only what the tokenizer does counts.
OF_OTHER_TABLES = "\U0002b820\u2e43\u0c84\u166d"


@pytest.fixture
def vocabulary(tmp_path):
    """Build the vocabulary of texts: vocabulary(["好"])."""

    def build(texts: list[str]) -> list[str]:
        folder = tmp_path
        (folder / "table").mkdir()
        (folder / "rows.json").write_text(json.dumps([[f"好{text}", 0] for text in texts]))
        build_table(folder / "table", str(folder / "rows.json"), ReadOptions(), False, None)
        np.save(folder / "train_rows.npy", np.arange(len(texts)))
        build_vocabulary(folder, Table(folder / "table"), folder / "train_rows.npy")
        return (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")

    return build


def test_characters_of_words_have_a_continuation(vocabulary):
    tokens = vocabulary(["中あ😀，é", "龘７"])
    assert tokens[:5] == SPECIAL_TOKENS
    assert len(set(tokens)) == len(tokens)
    extra = [token for token in tokens if token[-1] in "あ😀é７龘中，" or token in ("e", "##e")]
    # Accents go with lower case
    assert extra == ["e", "，", "中", "あ", "龘", "７", "😀", "##e", "##あ", "##７", "##😀"]
    assert set(gb2312_characters()) < set(tokens)


def test_no_character_of_the_training_text_is_unknown(vocabulary):
    """Whatever stands beside it; every 50th character of Unicode, and those above."""
    characters = [*map(chr, [*range(32, 0x3100), *range(0x3100, 0xD800, 50), *range(0xE000, 0x110000, 50)])]
    characters += [*SPLIT_OFF, *IN_WORDS, *OF_OTHER_TABLES]
    tokens = vocabulary(["".join(characters)])
    tokenizer = BertTokenizer({token: index for index, token in enumerate(tokens)}, do_lower_case=True)
    encodings = tokenizer.backend_tokenizer.encode_batch_fast([f"a{c}{c}好{c}a" for c in characters])
    unknown = [
        c for c, encoding in zip(characters, encodings, strict=True) if tokenizer.unk_token_id in encoding.ids
    ]
    assert unknown == []


def test_a_prefix_is_as_if_each_text_had_it_and_stays_with_the_tokenizer(tmp_path):
    folder = save_checkpoint(tmp_path)
    plain = AutoTokenizer.from_pretrained(folder)
    # The data is not read for the tokenizer of a checkpoint
    ours = load_tokenizer(ModelConfig(str(folder), prefix="a: "), None, 60, "")
    ours.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    wanted = plain("a: 今天真开心")["input_ids"]
    assert ours("今天真开心")["input_ids"] == again("今天真开心")["input_ids"] == wanted
    assert {**again("今天", "好")} == {**plain("a: 今天", "好")}
    assert again.model_max_length == 60
    assert again.special_tokens_map == plain.special_tokens_map
    # Texts are cut, not the prefix
    encoder = RowEncoder(again.backend_tokenizer, len(wanted) - 2)
    assert encoder.encode(["今天真开心"], str)[0].windows == [wanted[:-3] + wanted[-1:]]
    set_prefix(again.backend_tokenizer, "b")
    assert again("今天")["input_ids"] == plain("b今天")["input_ids"]
    set_prefix(again.backend_tokenizer, "")
    assert again("今天", "好")["input_ids"] == plain("今天", "好")["input_ids"]


def test_a_prefix_needs_a_template_of_special_tokens():
    with pytest.raises(InputError, match="post-processor TemplateProcessing, found none; leave it out"):
        set_prefix(Tokenizer(models.WordLevel({"好": 0}, "好")), "query: ")


VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (VOCABULARY.encode() + b"\xff\n", "cannot be read as a text file in UTF-8"),
        (VOCABULARY + "".join(f"{n}\n" for n in range(200_000)) + "7\n", "found '7' more than once"),
        (b"", r"found no \[PAD\]"),
        (bytes(1000), r"found no \[PAD\]"),
    ],
    ids=["bytes", "twice", "empty", "zeros"],
)
def test_vocabularies_that_are_none(write, content, message):
    with pytest.raises(InputError, match=message):
        load_tokenizer(ModelConfig(vocab_file=str(write("vocab.txt", content))), None, 8, "")
    path = write("mark.txt", f"\ufeff{VOCABULARY}好\n")
    assert load_tokenizer(ModelConfig(vocab_file=str(path)), None, 8, "").get_vocab()["好"] == 5
