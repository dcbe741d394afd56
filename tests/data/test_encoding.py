"""Tokenizers of strangers, whole and damaged: python -m pytest tests/data/test_encoding.py

The long part of the fuzz: -m slow
"""

import copy
import json
import random
import shutil
from pathlib import Path

import pytest

from app.config.schema import ModelConfig
from app.data.read import ReadOptions
from app.data.table import Table, build_table
from app.data.tokenizer import load_tokenizer
from app.data.tokens import EncodingJob, build_store, open_store
from app.errors import InputError
from app.prediction.torch_runtime import load_predictor
from tests.saved_classifier import as_rows, save_checkpoint

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


def table_of(folder: Path, rows: str) -> Table:
    (folder / "rows.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    (folder / "table").mkdir()
    build_table(folder / "table", str(folder / "rows.tsv"), ReadOptions(), False, None)
    return Table(folder / "table")


def test_a_text_without_a_token_is_named(checkpoint, tmp_path):
    splits = SPLIT | {"pattern": {"Regex": "[气 ]"}}
    change(checkpoint, lambda d: d.update(pre_tokenizer=splits, post_processor=None))
    message = "each text must have a token, and the tokenizer makes none of '气气'"
    with pytest.raises(InputError, match=f"row 2: {message}"):
        list(load_predictor(checkpoint, 32, device="cpu").predict(as_rows(["今天", "气气", "好"])))
    tokenizer = load_tokenizer(ModelConfig(name=str(checkpoint)), None, 32, "")
    with pytest.raises(InputError, match=rf"rows\.tsv, line 3: {message}; remove the row"):
        open_store(table_of(tmp_path, "今天\t1\n气气\t0\n"), tokenizer, 32, str(tmp_path / "cache"))


def test_ids_with_gaps_are_stored_whole(checkpoint, tmp_path):
    """A vocabulary of few tokens may have ids that 16 bits do not hold."""
    change(checkpoint, lambda d: d["model"]["vocab"].update(今=70_000))
    tokenizer = load_tokenizer(ModelConfig(name=str(checkpoint)), None, 32, "").backend_tokenizer
    table, folder = table_of(tmp_path, "今天\t1\n好\t0\n"), tmp_path / "store"
    folder.mkdir()
    build_store(folder, EncodingJob(table, tokenizer.to_str(), 32, 1))
    assert json.loads((folder / "store.json").read_text())["dtype"] == "int32"
    assert tokenizer.encode("今天").ids[1] == 70_000


VALUES = [None, 0, -1, 10**6, 10**12, 1.5, "", "x", [], {}, True, "[UNK]", "好" * 10_000, [0], ["[CLS]", 3], {"id": "A", "type_id": 7},
          SPLIT, SPLIT | {"pattern": {"Regex": "("}}, SPLIT | {"pattern": {"Regex": "(?:(?:a*)*)*b"}}, {"type": "BertPreTokenizer"},
          {"type": "Replace", "pattern": {"Regex": "."}, "content": ""}, {"type": "Digits", "individual_digits": True},
          {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "FixedLength", "length": 0},
          {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, {"type": "Prepend", "prepend": "x" * 10_000},
          {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]], "byte_fallback": False},
          {"type": "WordLevel", "unk_token": "no", "vocab": {"a": 0}}, {"type": "Sequence", "processors": []},
          {"direction": "Left", "max_length": 0, "strategy": "OnlySecond", "stride": 5}]  # fmt: skip
TEXTS = ["今天", "a b c 12", "😀\u200d", "。", "[MASK] x", "\ue000", "好" * 300]


def paths(value, path=()):
    """Yield the path of each value inside of a JSON value; of long objects and lists, of their first ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for _, (key, inner) in zip(range(40), items, strict=False):
        yield (*path, key)
        yield from paths(inner, (*path, key))


def damaged(definition: dict, seed: int) -> dict:
    """Return a copy with one to three values removed or replaced."""
    generator, definition = random.Random(seed), copy.deepcopy(definition)
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        *outer, key = generator.choice(list(paths(definition)))
        inner = definition
        for step in outer:
            inner = inner[step]
        if generator.random() < 0.25:
            del inner[key]
        else:
            inner[key] = copy.deepcopy(generator.choice(VALUES))
    return definition


@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 400), marks=pytest.mark.slow)], ids=["short", "long"]
)
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_tokenizers_work_or_are_one_error(checkpoint, name, seeds):
    definition = json.loads((checkpoint / name).read_text(encoding="utf-8"))
    found = {"works": 0, "error": 0}
    for seed in seeds:
        (checkpoint / name).write_text(json.dumps(damaged(definition, seed)), encoding="utf-8")
        try:
            predictor = load_predictor(checkpoint, 32, device="cpu")
            predictions = [*predictor.predict(as_rows(TEXTS)), *predictor.predict(as_rows(TEXTS, TEXTS))]
            assert len(predictions) == 2 * len(TEXTS), seed
            found["works"] += 1
        except InputError as error:
            assert "row " in str(error) or str(checkpoint) in str(error), seed  # noqa: PT017
            found["error"] += 1
    assert min(found.values()) > len(seeds) / 20, found
