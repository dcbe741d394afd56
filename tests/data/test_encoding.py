"""Tokenizers of strangers: python -m pytest tests/data/test_encoding.py"""

import json
import shutil
from pathlib import Path

import pytest

from app.config.schema import ModelConfig
from app.data.long_texts import CUT
from app.data.read import ReadOptions
from app.data.table import Table, build_table
from app.data.tokenizer import load_tokenizer
from app.data.tokens import build_store, open_store
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
    build_store(folder, table, (tokenizer.to_str(), 32, "right", CUT), 1)
    assert json.loads((folder / "store.json").read_text())["dtype"] == "int32"
    assert tokenizer.encode("今天").ids[1] == 70_000
