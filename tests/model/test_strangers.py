"""Configurations and checkpoints from somebody else execute nothing: python -m pytest
tests/model/test_strangers.py

Each trap makes a file when it is sprung, and is sprung once on purpose, to show that it works.
"""

import ast
import importlib
import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
import yaml

from app.config.command_line import load_config, read_yaml
from app.config.schema import DataConfig, ModelConfig
from app.data.cache import MANIFEST
from app.data.dataset import open_dataset
from app.data.tokenizer import load_tokenizer
from app.errors import InputError
from app.model.pretrained import build_model
from app.prediction.model_folder import run_settings
from app.prediction.torch_runtime import load_checkpoint, load_predictor
from tests.model.test_model import Evil
from tests.saved_classifier import LABELS, as_rows, save_checkpoint
from tests.verbs import predict

ROOT = Path(__file__).resolve().parents[2]


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


def change(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def train_from(folder: Path, **settings):
    """Return the model that a training run would start from, and its tokenizer."""
    config = ModelConfig(name=str(folder), **settings)
    tokenizer = load_tokenizer(config, None, 32, "")
    return build_model(config, tokenizer, LABELS, 32), tokenizer


def logits_of(folder: Path) -> np.ndarray:
    predictor = load_predictor(folder, 32, device="cpu")
    return predictor.logits(predictor.tokenize(as_rows(["今天真开心", "差"])))


PICKLES = ["pytorch_model.bin", "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.pt", "model.pkl",
           "adapter_model.bin", "model.metadata", "tf_model.h5", "added_tokens.pkl", "state/step-00000001/optimizer.bin"]  # fmt: skip


@pytest.mark.parametrize("how", ["pickle", "torch.save"])
def test_pickles_beside_the_weights_are_never_opened(saved, checkpoint, trace, how):
    for name in PICKLES:
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if how == "pickle":
            path.write_bytes(pickle.dumps(Evil(trace), protocol=2))
        else:
            torch.save({"bert": Evil(trace)}, path)
    np.testing.assert_array_equal(logits_of(checkpoint), logits_of(saved))
    train_from(checkpoint)
    assert not trace.exists()
    with (checkpoint / PICKLES[0]).open("rb") as file:
        pickle.load(file) if how == "pickle" else torch.load(file, weights_only=False)
    assert trace.exists()


def test_an_index_of_weights_opens_no_pickle(checkpoint, trace):
    """transformers opens whatever file the index names."""
    (checkpoint / "model.safetensors").unlink()
    torch.save({"bert": Evil(trace)}, checkpoint / "evil.bin")
    index = checkpoint / "model.safetensors.index.json"
    for shard in ("evil.bin", "../evil.safetensors", "/tmp/evil.safetensors"):
        index.write_text(
            json.dumps({"metadata": {}, "weight_map": {"classifier.weight": shard}}), encoding="utf-8"
        )
        with pytest.raises(InputError, match="only safetensors files of the folder are read"):
            load_checkpoint(checkpoint)
        with pytest.raises(InputError) as error:
            train_from(checkpoint)
        assert "weights_only" not in str(error.value)
    index.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="not a readable index of weights"):
        load_checkpoint(checkpoint)
    assert not trace.exists()


def test_the_weights_file_that_a_configuration_names_is_no_pickle(checkpoint, trace):
    torch.save({"bert": Evil(trace)}, checkpoint / "pytorch_model.bin")
    change(checkpoint / "config.json", transformers_weights="pytorch_model.bin")
    for load in (load_checkpoint, train_from):
        with pytest.raises(InputError, match="could not be loaded"):
            load(checkpoint)
    assert not trace.exists()


CODE = """
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
Path({trace!r}).touch()
class Config(BertConfig): pass
class Model(BertForSequenceClassification): config_class = Config
class Tokenizer(BertTokenizer): pass
"""


def with_code(folder: Path, trace: Path, name: str) -> None:
    """Give a checkpoint Python code; `name` makes its modules different from those of other tests."""
    (folder / f"{name}.py").write_text(CODE.format(trace=str(trace)), encoding="utf-8")
    automatic = {"AutoConfig": f"{name}.Config", "AutoModelForSequenceClassification": f"{name}.Model"}
    change(folder / "config.json", auto_map=automatic)
    tokenizer = {"AutoTokenizer": [f"{name}.Tokenizer", f"{name}.Tokenizer"]}
    change(folder / "tokenizer_config.json", auto_map=tokenizer)


@pytest.fixture(autouse=True)
def modules_of_checkpoints(tmp_path, monkeypatch):
    """transformers copies the code of a checkpoint before it imports it: not into the home folder."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))


def test_code_of_a_checkpoint_never_runs(saved, checkpoint, trace):
    with_code(checkpoint, trace, "asked")
    np.testing.assert_array_equal(logits_of(checkpoint), logits_of(saved))
    train_from(checkpoint)
    assert not trace.exists()


def test_a_checkpoint_that_needs_its_code_is_refused(checkpoint, trace):
    with_code(checkpoint, trace, "needed")
    change(checkpoint / "config.json", model_type="evil")
    for load in (load_checkpoint, train_from):
        with pytest.raises(InputError, match="trust_remote_code"):
            load(checkpoint)
    assert not trace.exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", ["kernels-community/evil", "evil/kernel@main:run", "flash_attention_2"])
def test_the_attention_that_a_configuration_names_is_not_fetched(saved, checkpoint, key, value):
    """transformers would fetch a kernel from the hub and run it, whatever trust_remote_code says."""
    change(checkpoint / "config.json", **{key: value})
    np.testing.assert_array_equal(logits_of(checkpoint), logits_of(saved))
    model, _ = train_from(checkpoint)
    assert "/" not in model.model.config._attn_implementation


BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True}
BROKEN = {
    "quantised": ("config.json", {"quantization_config": BITS}),
    "quantised by a number": ("config.json", {"quantization_config": 5}),
    "model type that is a list": ("config.json", {"model_type": ["bert"]}),
    "function for an activation": ("config.json", {"hidden_act": "os.system"}),
    "no heads": ("config.json", {"num_attention_heads": 0}),
    "size that is no number": ("config.json", {"hidden_size": "wide"}),
    "size without end": ("config.json", {"hidden_size": 10**12}),
    "dtype that is none": ("config.json", {"dtype": "evil"}),
    "names that are a list": ("config.json", {"id2label": ["a", "b", "c"]}),
    "tokenizer class that is a number": ("tokenizer_config.json", {"tokenizer_class": 5}),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_configurations_are_errors_and_no_tracebacks(checkpoint, fault):
    name, values = BROKEN[fault]
    change(checkpoint / name, **values)
    with pytest.raises(InputError, match="could not be loaded"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"[" * 100_000, b"\xff\xfe", b"null", b"5"])
def test_broken_files_of_a_checkpoint_are_errors_and_no_tracebacks(checkpoint, name, content):
    (checkpoint / name).write_bytes(content)
    for load in (lambda: load_predictor(checkpoint, 32, device="cpu"), lambda: train_from(checkpoint)):
        try:
            load()
        except InputError as error:
            assert str(checkpoint) in str(error) or "model." in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "names",
    [
        {"0": "a", "1": "b", "7": "c"},
        {"0": "a", "1": "a", "2": "b"},
        {"0": "\ud800", "1": "b", "2": "c"},
    ],
)
def test_label_names_that_no_output_can_have(checkpoint, capsys, names):
    """A missing one was a traceback, a repeated one lost a column, half a character could not be written."""
    change(
        checkpoint / "config.json", id2label=names, label2id={str(name): int(n) for n, name in names.items()}
    )
    assert predict(["--checkpoint", str(checkpoint), "今天"]) == 2
    assert "must name each label from 0 to 2" in capsys.readouterr().err


def test_weights_that_are_a_pipe_are_not_waited_for(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    os.mkfifo(checkpoint / "model.safetensors")
    with pytest.raises(InputError, match="found no weights"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize("length", ["abc", "-5", "1", "1e3", "[1]", "999999999999999", "true", "2001-99-99"])
def test_settings_of_a_run_that_are_none(checkpoint, length):
    (checkpoint / "config.yaml").write_text(f"data: {{max_length: {length}}}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.yaml"):
        run_settings(checkpoint)


def test_arrays_of_a_strangers_cache_hold_no_objects(tmp_path, trace):
    lines = "".join(f"{number}好\t{number % 2}\n" for number in range(20))
    (tmp_path / "a.tsv").write_text(lines, encoding="utf-8")
    config = DataConfig(train=str(tmp_path / "a.tsv"), cache_dir=str(tmp_path / "cache"))
    folder = open_dataset(config).folder
    path, manifest = folder / "train_labels.npy", folder / MANIFEST
    np.save(path, np.array([Evil(trace)] * 20, dtype=object), allow_pickle=True)
    sizes = json.loads(manifest.read_text()) | {path.name: path.stat().st_size}
    manifest.write_text(json.dumps(sizes))
    trace.unlink(missing_ok=True)
    with pytest.raises(ValueError, match="[Oo]bject"):
        open_dataset(config)
    assert not trace.exists()


TAGS = {
    "call": "data: !!python/object/apply:os.system ['touch {trace}']",
    "call inside": "model: {{config: {{x: !!python/object/apply:os.system ['touch {trace}']}}}}",
    "new object": "!!python/object/new:subprocess.Popen [[touch, '{trace}']]",
    "module": "data: {{train: !!python/module:trap }}",
    "name": "data: {{train: !!python/name:trap.name }}",
    "tag of one's own": "data: !evil {{}}",
}


@pytest.mark.parametrize("fault", TAGS)
def test_tags_are_refused(write, checkpoint, trace, fault):
    text = TAGS[fault].format(trace=trace)
    path = write("evil.yaml", text)
    with pytest.raises(
        InputError, match=r"evil\.yaml is not a readable YAML file.*\s.*constructor for the tag"
    ):
        load_config(["--config", str(path)])
    (checkpoint / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a readable YAML file"):
        run_settings(checkpoint)
    assert not trace.exists()
    if fault == "call":
        yaml.unsafe_load(text)
        assert trace.exists()


@pytest.mark.parametrize(
    "where", ["model: {{config: {value}}}", "model: {{config: {{x: {value}}}}}", "data: {value}"]
)
@pytest.mark.parametrize("key", ["class_path", "_target_"])
def test_classes_that_a_configuration_names_are_not_imported(write, tmp_path, trace, monkeypatch, where, key):
    """Some parsers of settings make objects of `class_path`."""
    (tmp_path / "trap.py").write_text(f"open({str(trace)!r}, 'w')\nclass Trap: pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    text = where.format(value=f"{{{key}: trap.Trap, init_args: {{}}}}")
    try:
        config = load_config(["--config", str(write("evil.yaml", text))])
    except InputError:
        config = None
    assert not trace.exists()
    assert config is None or isinstance(config.model.config, dict)
    importlib.import_module("trap")
    assert trace.exists()
    del sys.modules["trap"]


def test_what_is_no_file_of_settings(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for path, problem in (
        (tmp_path / "pipe.yaml", "is no file"),
        (Path("/dev/zero"), "is no file"),
        (tmp_path, "is no file"),
        (tmp_path / "no.yaml", "is not there"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        with pytest.raises(InputError, match=problem):
            read_yaml(path)


FORBIDDEN = {"pickle.load", "pickle.loads", "torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "marshal.loads",
             "shelve.open", "joblib.load", "eval", "exec", "os.system", "os.popen"}  # fmt: skip


def test_the_sources_call_nothing_that_executes_what_it_reads():
    files = [*(ROOT / "app").rglob("*.py"), *ROOT.glob("*.py")]
    assert len(files) > 30
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in FORBIDDEN, f"{path}, line {node.lineno}"
                assert not any(
                    keyword.arg in ("allow_pickle", "shell") and ast.unparse(keyword.value) != "False"
                    for keyword in node.keywords
                ), f"{path}, line {node.lineno}"
