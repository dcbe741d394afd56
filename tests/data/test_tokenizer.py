"""Tokenizers: the vocabulary of a model with random weights, words before texts, and those of strangers:
python -m pytest tests/data/test_tokenizer.py"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, BertTokenizer

from app.config.schema import ModelConfig
from app.data.files import gb2312_characters
from app.data.read import ReadOptions
from app.data.table import Table, build_table
from app.data.tokens import (
    CUT,
    SPECIAL_TOKENS,
    RowEncoder,
    build_store,
    build_vocabulary,
    load_tokenizer,
    open_store,
    set_prefix,
)
from app.errors import InputError
from app.prediction.torch_runtime import load_predictor
from tests.saved_classifier import as_rows, save_checkpoint

# U+3400, U+20000 and U+2CEAF are first or last in ranges of Chinese characters; `〇` is in none of them.
SPLIT_OFF = "中\u3400\U00020000\U0002ceaf，。“…—·!$^~「٪"
IN_WORDS = "aéß7７яあアー한ก😀❤€＋→②℃々〇～\u200d"
# The tables of `tokenizers` and of Python differ here; only what the tokenizer does counts.
OF_OTHER_TABLES = "\U0002b820\u2e43\u0c84\u166d"


def table_of(folder: Path, texts: list[str]) -> Table:
    (folder / "rows.json").write_text(json.dumps([[text, at % 2] for at, text in enumerate(texts)]))
    (folder / "table").mkdir()
    build_table(folder / "table", str(folder / "rows.json"), ReadOptions(), False, None)
    return Table(folder / "table")


@pytest.fixture
def vocabulary(tmp_path):
    """Build the vocabulary of texts: vocabulary(["好"])."""

    def build(texts: list[str]) -> list[str]:
        table = table_of(tmp_path, [f"好{text}" for text in texts])
        np.save(tmp_path / "train_rows.npy", np.arange(len(texts)))
        build_vocabulary(tmp_path, table, tmp_path / "train_rows.npy")
        return (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")

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
    assert encoder.encode(["今天真开心"], str).tokens.tolist() == wanted[:-3] + wanted[-1:]
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


# Of strangers

SPLIT = {"type": "Split", "pattern": {"Regex": "[^x]"}, "behavior": "Removed", "invert": False}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A checkpoint whose tokenizer is just what its tokenizer.json says; BertTokenizer would replace most of
    that."""
    folder = save_checkpoint(tmp_path_factory.mktemp("saved"))
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture
def checkpoint(saved, tmp_path) -> Path:
    return shutil.copytree(saved, tmp_path / "checkpoint")


def change(folder: Path, change_it) -> None:
    definition = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change_it(definition)
    (folder / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")


FAULTS = {
    "no unknown token": (lambda d: d["model"]["vocab"].pop("[UNK]"), "cannot encode a text: .*Missing .UNK. token"),
    "template": (lambda d: d["post_processor"]["special_tokens"]["[CLS]"].update(ids=[999]), "of its vocabulary, found the ids 999, "),
    "separator": (
        lambda d: d.update(post_processor={"type": "BertProcessing", "sep": ["[SEP]", 777], "cls": ["[CLS]", 2]}),
        "of its vocabulary, found the ids .* 777",
    ),
    "no token": (lambda d: d.update(pre_tokenizer=SPLIT, post_processor=None), "found the ids none for '好a1。'"),
    "panic while encoding": (
        lambda d: d.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "cannot encode a text: chunk size must be non-zero; repair its tokenizer.json",
    ),
    "panic while loading": (
        lambda d: d.update(model={"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], "continuing_subword_prefix": "###"}),
        "range end index .* out of range",
    ),
    "id beyond the model": (
        lambda d: d["model"]["vocab"].update(今=70_000),
        r"ids go up to 70,000; they must belong together",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_tokenizers_that_cannot_work_are_one_error(checkpoint, fault, capfd):
    change_it, problem = FAULTS[fault]
    change(checkpoint, change_it)
    with pytest.raises(InputError, match=problem) as error:
        load_predictor(checkpoint, 32, device="cpu")
    assert str(checkpoint) in str(error.value)
    # Which the model of a training run finds
    if fault != "id beyond the model":
        with pytest.raises(InputError, match=problem) as error:
            load_tokenizer(ModelConfig(name=str(checkpoint)), None, 32, "")
        assert str(checkpoint) in str(error.value)


def test_settings_of_a_strangers_tokenizer_that_do_not_matter(checkpoint):
    """Padding and truncation are ours."""

    def probabilities():
        predictions = load_predictor(checkpoint, 32, device="cpu").predict(as_rows(["今天真开心"]))
        return [row.probabilities.tolist() for row in predictions]

    before = probabilities()
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 50_000}, "direction": "Right", "pad_to_multiple_of": 0}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    change(checkpoint, lambda d: d.update(truncation=truncation, padding=padding))
    assert probabilities() == before


def test_a_text_without_a_token_is_named(checkpoint, tmp_path):
    splits = SPLIT | {"pattern": {"Regex": "[气 ]"}}
    change(checkpoint, lambda d: d.update(pre_tokenizer=splits, post_processor=None))
    message = "each text must have a token, and the tokenizer makes none of '气气'"
    with pytest.raises(InputError, match=f"row 2: {message}"):
        list(load_predictor(checkpoint, 32, device="cpu").predict(as_rows(["今天", "气气", "好"])))
    tokenizer = load_tokenizer(ModelConfig(name=str(checkpoint)), None, 32, "")
    with pytest.raises(InputError, match=rf"rows\.json, element 2: {message}; remove the row"):
        open_store(table_of(tmp_path, ["今天", "气气"]), tokenizer, 32, str(tmp_path / "cache"))


def test_ids_with_gaps_are_stored_whole(checkpoint, tmp_path):
    """A vocabulary of few tokens may have ids that 16 bits do not hold."""
    change(checkpoint, lambda d: d["model"]["vocab"].update(今=70_000))
    tokenizer = load_tokenizer(ModelConfig(name=str(checkpoint)), None, 32, "").backend_tokenizer
    table, folder = table_of(tmp_path, ["今天", "好"]), tmp_path / "store"
    folder.mkdir()
    build_store(folder, table, (tokenizer.to_str(), 32, "right", CUT), 1)
    assert json.loads((folder / "store.json").read_text())["dtype"] == "int32"
    assert tokenizer.encode("今天").ids[1] == 70_000
