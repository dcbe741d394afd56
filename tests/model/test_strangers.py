"""Configurations and checkpoints from somebody else execute nothing: python -m pytest
tests/model/test_strangers.py

Each trap makes a file when it is sprung, and is sprung once on purpose, to show that it works.
"""

import ast
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
import yaml

from app.config.command_line import load_config
from app.config.schema import ModelConfig
from app.data.tokens import load_tokenizer
from app.errors import InputError
from app.model.pretrained import build_model
from app.prediction.model_folder import run_settings
from app.prediction.torch_runtime import load_checkpoint, load_predictor
from tests.saved_classifier import LABELS, as_rows, save_checkpoint
from tests.verbs import predict

ROOT = Path(__file__).resolve().parents[2]


class Evil:
    """What a hostile checkpoint would hold: reading it as a pickle makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def checkpoint(saved, tmp_path) -> Path:
    """A good checkpoint, to be spoiled."""
    return shutil.copytree(saved, tmp_path / "checkpoint")


@pytest.fixture
def trace(tmp_path) -> Path:
    """The file that a trap makes."""
    return tmp_path / "trace"


@pytest.fixture(autouse=True)
def modules_of_checkpoints(tmp_path, monkeypatch):
    """transformers copies the code of a checkpoint before it imports it: not into the home folder."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))


def change(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def train_from(folder: Path):
    """Return the model that a training run would start from."""
    config = ModelConfig(name=str(folder))
    return build_model(config, load_tokenizer(config, None, 32, ""), LABELS, 32)


def assert_harmless(checkpoint: Path, saved: Path, trace: Path) -> None:
    """Check that a spoiled checkpoint predicts as the good one, can be trained, and springs no trap."""
    rows = as_rows(["今天真开心", "差"])
    spoiled, good = (load_predictor(folder, 32, device="cpu") for folder in (checkpoint, saved))
    np.testing.assert_array_equal(spoiled.logits(spoiled.tokenize(rows)), good.logits(good.tokenize(rows)))
    assert "/" not in train_from(checkpoint).model.config._attn_implementation
    assert not trace.exists()


HOW = ["pickle", "torch.save", "torch.save, old format"]


def write_evil(path: Path, trace: Path, how: str) -> None:
    if how == "pickle":
        path.write_bytes(pickle.dumps(Evil(trace), protocol=2))
    else:
        torch.save({"bert": Evil(trace)}, path, _use_new_zipfile_serialization=how == "torch.save")


@pytest.mark.parametrize("how", HOW)
def test_weights_that_are_a_pickle_do_not_run(checkpoint, trace, how):
    (checkpoint / "model.safetensors").unlink()
    write_evil(checkpoint / "pytorch_model.bin", trace, how)
    with pytest.raises(InputError, match="holds more than tensors") as error:
        train_from(checkpoint)
    # Never advise to switch the guard off
    assert "weights_only" not in str(error.value)
    assert not trace.exists()
    with (checkpoint / "pytorch_model.bin").open("rb") as file:
        pickle.load(file) if how == "pickle" else torch.load(file, weights_only=False)
    assert trace.exists()


PICKLES = "pytorch_model.bin training_args.bin optimizer.pt scheduler.pt rng_state.pth model.pt model.pkl"
PICKLES += " adapter_model.bin model.metadata tf_model.h5 added_tokens.pkl state/step-00000001/optimizer.bin"


@pytest.mark.parametrize("how", HOW)
def test_pickles_beside_the_weights_are_never_opened(saved, checkpoint, trace, how):
    (checkpoint / "state" / "step-00000001").mkdir(parents=True)
    for name in PICKLES.split():
        write_evil(checkpoint / name, trace, how)
    assert_harmless(checkpoint, saved, trace)


def test_a_weights_file_that_is_named_elsewhere_is_no_pickle(checkpoint, trace):
    """transformers opens whatever file an index or a configuration names."""
    write_evil(checkpoint / "evil.bin", trace, "torch.save")
    config = (checkpoint / "config.json").read_text(encoding="utf-8")
    change(checkpoint / "config.json", transformers_weights="evil.bin")
    for load in (load_checkpoint, train_from):
        with pytest.raises(InputError, match="could not be loaded"):
            load(checkpoint)
    (checkpoint / "config.json").write_text(config, encoding="utf-8")
    (checkpoint / "model.safetensors").unlink()
    index = checkpoint / "model.safetensors.index.json"
    for shard in ("evil.bin", "../evil.safetensors", "/tmp/evil.safetensors"):
        weights = {"metadata": {}, "weight_map": {"classifier.weight": shard}}
        index.write_text(json.dumps(weights), encoding="utf-8")
        with pytest.raises(InputError, match="only safetensors files of the folder are read"):
            load_checkpoint(checkpoint)
        with pytest.raises(InputError) as error:
            train_from(checkpoint)
        assert "weights_only" not in str(error.value)
    index.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="not a readable index of weights"):
        load_checkpoint(checkpoint)
    assert not trace.exists()


CODE = """
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
Path({trace!r}).touch()
class Config(BertConfig): pass
class Model(BertForSequenceClassification): config_class = Config
class Tokenizer(BertTokenizer): pass
"""


def test_code_of_a_checkpoint_never_runs(saved, checkpoint, trace):
    """One that needs it is refused."""
    (checkpoint / "code.py").write_text(CODE.format(trace=str(trace)), encoding="utf-8")
    automatic = {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Model"}
    change(checkpoint / "config.json", auto_map=automatic)
    tokenizer = {"AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}
    change(checkpoint / "tokenizer_config.json", auto_map=tokenizer)
    assert_harmless(checkpoint, saved, trace)
    change(checkpoint / "config.json", model_type="evil")
    for load in (load_checkpoint, train_from):
        with pytest.raises(InputError, match="trust_remote_code"):
            load(checkpoint)
    assert not trace.exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", ["kernels-community/evil", "evil/kernel@main:run", "flash_attention_2"])
def test_the_attention_that_a_configuration_names_is_not_fetched(saved, checkpoint, trace, key, value):
    """transformers would fetch a kernel from the hub and run it, whatever trust_remote_code says."""
    change(checkpoint / "config.json", **{key: value})
    assert_harmless(checkpoint, saved, trace)


BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True}
BROKEN = [
    {"quantization_config": BITS},
    {"quantization_config": 5},
    {"model_type": ["bert"]},
    {"dtype": "evil"},
]
BROKEN += [{"hidden_act": "os.system"}, {"num_attention_heads": 0}, {"id2label": ["a", "b", "c"]}]
BROKEN += [{"hidden_size": "wide"}, {"hidden_size": 10**12}, {"tokenizer_class": 5}]


@pytest.mark.parametrize("values", BROKEN, ids=str)
def test_broken_configurations_are_errors_and_no_tracebacks(checkpoint, values):
    name = "tokenizer_config.json" if "tokenizer_class" in values else "config.json"
    change(checkpoint / name, **values)
    with pytest.raises(InputError, match="could not be loaded"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b"null"])
def test_broken_files_of_a_checkpoint_are_errors_and_no_tracebacks(checkpoint, name, content):
    (checkpoint / name).write_bytes(content)
    for load in (lambda: load_predictor(checkpoint, 32, device="cpu"), lambda: train_from(checkpoint)):
        try:
            load()
        except InputError as error:
            assert str(checkpoint) in str(error) or "model." in str(error)  # noqa: PT017


@pytest.mark.parametrize("names", [{"0": "a", "1": "b", "7": "c"}, {"0": "a", "1": "a", "2": "b"}])
def test_label_names_that_no_output_can_have(checkpoint, capsys, names):
    """A missing one was a traceback, a repeated one lost a column."""
    numbers = {str(name): int(number) for number, name in names.items()}
    change(checkpoint / "config.json", id2label=names, label2id=numbers)
    assert predict(["--checkpoint", str(checkpoint), "今天"]) == 2
    assert "must name each label from 0 to 2" in capsys.readouterr().err


def test_weights_that_are_a_pipe_are_not_waited_for(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    os.mkfifo(checkpoint / "model.safetensors")
    with pytest.raises(InputError, match="found no weights"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize("length", ["abc", "-5", "999999999999999", "true"])
def test_settings_of_a_run_that_are_none(checkpoint, length):
    (checkpoint / "config.yaml").write_text(f"data: {{max_length: {length}}}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.yaml"):
        run_settings(checkpoint)


TAGS = [
    "data: !!python/object/apply:os.system ['touch {trace}']",
    "data: {{train: !!python/name:trap.name }}",
]


@pytest.mark.parametrize("tags", TAGS)
def test_tags_are_refused(write, checkpoint, trace, tags):
    text = tags.format(trace=trace)
    path = write("evil.yaml", text)
    with pytest.raises(InputError, match=r"evil\.yaml is not a readable YAML .*\s.*constructor for the tag"):
        load_config(["--config", str(path)])
    (checkpoint / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a readable YAML file"):
        run_settings(checkpoint)
    assert not trace.exists()
    if tags == TAGS[0]:
        yaml.unsafe_load(text)
        assert trace.exists()


FORBIDDEN = "pickle.load pickle.loads torch.load yaml.load yaml.unsafe_load yaml.full_load marshal.loads"
FORBIDDEN += " shelve.open joblib.load eval exec os.system os.popen"


def test_the_sources_call_nothing_that_executes_what_it_reads():
    files = [*(ROOT / "app").rglob("*.py"), *ROOT.glob("*.py")]
    assert len(files) > 30
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            place = f"{path}, line {node.lineno}"
            assert ast.unparse(node.func) not in FORBIDDEN.split(), place
            for keyword in node.keywords:
                is_off = ast.unparse(keyword.value) == "False"
                assert keyword.arg not in ("allow_pickle", "shell") or is_off, place
