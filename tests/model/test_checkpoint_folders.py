"""Folders that people name as a model, and that need one more step; and addresses of a hub and of proxies."""

import codecs
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.checkpoint import checkpoint_config, checkpoint_place
from app.model.tokenizer import load_checkpoint_tokenizer
from app.prediction.load_checkpoint import load_checkpoint
from tests.saved_classifier import LABELS, save_checkpoint

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 409100240\n" % (b"0" * 64)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def checkpoint(saved, tmp_path) -> Path:
    """A copy of a checkpoint, to be spoiled."""
    return shutil.copytree(saved, tmp_path / "checkpoint")


def problem_of(folder: Path) -> str:
    """Return what is wrong with a folder, which is the same for training and for prediction."""
    with pytest.raises(InputError) as in_training:
        checkpoint_place(ModelConfig(name=str(folder)), "")
    with pytest.raises(InputError) as in_prediction:
        load_checkpoint(folder)
    assert str(in_prediction.value) == str(in_training.value)
    return str(in_training.value)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_called_so_with_the_command_that_fetches_the_file(checkpoint, name):
    (checkpoint / name).write_bytes(POINTER)
    problem = problem_of(checkpoint)
    assert problem.startswith(f"{checkpoint / name}: ")
    assert f"a pointer of Git LFS ({len(POINTER)} bytes)" in problem
    assert problem.endswith(f"git -C {checkpoint} lfs pull")


def test_pointers_of_files_that_are_not_read_do_not_matter(checkpoint):
    for name in ("pytorch_model.bin", "flax_model.msgpack", "sentencepiece.bpe.model"):
        (checkpoint / name).write_bytes(POINTER)
    assert checkpoint_place(ModelConfig(name=str(checkpoint)), "") == str(checkpoint)
    load_checkpoint(checkpoint)


def test_a_folder_of_checkpoints_names_them_the_latest_first(saved, tmp_path):
    for step in (9, 10, 100):
        shutil.copytree(saved, tmp_path / "output" / f"checkpoint-{step}")
    (tmp_path / "output" / "runs").mkdir()
    names = ", ".join(str(tmp_path / "output" / f"checkpoint-{step}") for step in (100, 10, 9))
    assert problem_of(tmp_path / "output").endswith(f"checkpoints inside; name one of them: {names}")


def test_a_folder_of_the_hubs_cache_names_the_snapshot_inside(saved, tmp_path):
    model = tmp_path / "hub" / "models--hfl--chinese-macbert-base"
    snapshot = model / "snapshots" / "0123abcd"
    shutil.copytree(saved, snapshot)
    (model / "refs").mkdir()
    for folder in (model, tmp_path / "hub"):
        assert problem_of(folder).endswith(f"name one of them: {snapshot}")


def test_a_folder_without_any_checkpoint_says_what_is_needed(tmp_path):
    with pytest.raises(InputError, match="a checkpoint must be a folder with config.json"):
        load_checkpoint(tmp_path)


def test_a_checkpoint_without_a_tokenizer_needs_that_of_the_base_model(checkpoint):
    (checkpoint / "tokenizer.json").unlink()
    problem = problem_of(checkpoint)
    assert "there is no file with its vocabulary, such as tokenizer.json or vocab.txt" in problem
    assert problem.endswith("copy the tokenizer's files of the model that it was trained from into it")


def test_a_configuration_with_a_byte_order_mark_is_read(checkpoint):
    path = checkpoint / "config.json"
    expected = checkpoint_config(checkpoint).to_dict()
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert checkpoint_config(checkpoint).to_dict() == expected
    model, _tokenizer = load_checkpoint(checkpoint)
    assert list(model.config.id2label.values()) == LABELS
    load_checkpoint_tokenizer(str(checkpoint))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_byte_order_mark_in_another_file_is_named(checkpoint, name):
    path = checkpoint / name
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    problem = problem_of(checkpoint)
    assert problem.startswith(f"{path}: the file must begin without a byte order mark, found one")


@pytest.mark.slow
def test_an_adapter_is_merged_by_the_command_that_its_error_has(checkpoint, tmp_path):
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForSequenceClassification

    folder = tmp_path / "somebody's adapter"
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    settings = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    peft.get_peft_model(model, settings).save_pretrained(folder)
    message, command = problem_of(folder).splitlines()
    assert f"found an adapter of {checkpoint} (adapter_config.json); merge it into that model" in message
    assert "num_labels" not in command
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    subprocess.run(command.replace("python", sys.executable, 1), shell=True, check=True, env=environment)
    merged, tokenizer = load_checkpoint(tmp_path / "somebody's adapter-merged")
    assert merged.config.num_labels == 3
    assert merged.config.id2label == dict(enumerate(LABELS))
    assert merged.config.label2id == {name: number for number, name in enumerate(LABELS)}
    assert len(tokenizer) > 5
    # The base has no names of its labels, and the folder of the trainer may have them
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    unnamed = config | {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}
    (checkpoint / "config.json").write_text(json.dumps(unnamed), encoding="utf-8")
    message, command = problem_of(folder).splitlines()
    assert "write their names, in the order of the training, into id2label in" in message
    assert "num_labels=3" in command
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "甲", "1": "it's", "2": "丙"}}))
    _message, command = problem_of(folder).splitlines()
    assert shlex.split(command)[2].count('{0: "甲", 1: "it\'s", 2: "丙"}') == 1
    # The folder of a trainer has adapters too
    shutil.copytree(folder, tmp_path / "output" / "checkpoint-7")
    assert problem_of(tmp_path / "output").endswith(str(tmp_path / "output" / "checkpoint-7"))


def test_a_mirror_without_https_is_one_line(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "hf-mirror.com")
    with pytest.raises(InputError) as raised:
        checkpoint_place(ModelConfig(name="hfl/chinese-macbert-base"), "")
    problem = "HF_ENDPOINT must be an address with https://, found 'hf-mirror.com'"
    assert str(raised.value) == f"{problem}; set HF_ENDPOINT=https://hf-mirror.com"


PROXIES = {
    "socks5://127.0.0.1:1": "one more package: pip install socksio; or set a proxy that is http://",
    "foo://127.0.0.1:1": "Unknown scheme for proxy URL",
}


@pytest.mark.parametrize(("proxy", "problem"), PROXIES.items())
def test_a_proxy_that_cannot_be_used_is_one_line(monkeypatch, tmp_path, proxy, problem):
    from huggingface_hub import close_session

    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    close_session()
    try:
        with pytest.raises(InputError) as raised:
            checkpoint_place(ModelConfig(name="hfl/chinese-macbert-base"), "")
    finally:
        close_session()
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_model_with_code_of_its_own_is_refused_with_that_reason(checkpoint, monkeypatch, tmp_path):
    """A folder and a hub name: transformers' class of this type would read the weights in another way."""
    path = checkpoint / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["auto_map"] = {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}
    path.write_text(json.dumps(values), encoding="utf-8")
    reason = r"found one with code of its own, which is never run .*auto_map: AutoConfig, AutoModel\)"
    assert re.search(reason, problem_of(checkpoint))
    monkeypatch.setattr("app.model.checkpoint.hf_hub_download", lambda name, file: str(path))
    with pytest.raises(InputError, match=rf"^Alibaba-NLP/gte-multilingual-base: .*{reason}"):
        checkpoint_place(ModelConfig(name="Alibaba-NLP/gte-multilingual-base"), str(tmp_path))
