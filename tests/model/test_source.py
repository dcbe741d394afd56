"""model.name: folders, a hub, a mirror, finished runs: python -m pytest tests/model/test_source.py"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import split

import numpy as np
import pytest
import torch
from huggingface_hub import constants

from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.pretrained import build_model
from app.model.source import checkpoint_place
from tests.saved_classifier import SIZES as SAVED
from tests.saved_classifier import save_checkpoint
from tests.tiny import LABELS, tiny_tokenizer, write_tiny

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 96}


@pytest.fixture
def trained(tmp_path, caplog):
    """Save a model of the labels x, y, z, and return it, and a function that builds from it for labels."""
    caplog.set_level(logging.INFO)

    def save(task: str = "single_label_classification", bias: np.ndarray | None = None):
        tokenizer = tiny_tokenizer()
        first = build_model(ModelConfig(config=SIZES), tokenizer, ["x", "y", "z"], 32, task, bias).model
        first.save_pretrained(tmp_path / "trained")

        def again(labels: list[str], task: str = task, bias: np.ndarray | None = None, folder="trained"):
            caplog.clear()
            settings = ModelConfig(name=str(tmp_path / folder))
            return build_model(settings, tokenizer, labels, 32, task, bias).model

        return first, again

    return save


def test_a_model_of_other_labels_keeps_its_encoder_and_gets_a_new_head(tmp_path, caplog, trained):
    first, again = trained()
    assert torch.equal(again(["x", "y", "z"]).classifier.weight, first.classifier.weight)
    assert caplog.messages == []
    for labels in (["a", "b", "c"], ["x", "y", "w"], ["z", "y", "x"], ["a", "b"]):
        other = again(labels)
        assert caplog.messages == [
            f"{tmp_path}/trained was trained on other labels (x, y, z): its encoder is kept, the head is new."
        ]
        assert other.classifier.weight.shape[0] == len(labels)
        assert other.config.id2label == dict(enumerate(labels))
        assert other.config.label2id == {name: index for index, name in enumerate(labels)}
        assert not torch.equal(other.classifier.weight[:2], first.classifier.weight[:2])
        assert not other.classifier.bias.any()
        for name, weight in first.bert.state_dict().items():
            assert torch.equal(other.bert.state_dict()[name], weight)


def test_only_a_new_head_starts_with_a_given_bias(tmp_path, trained):
    bias = np.array([-3.0, -1.0, 0.5], np.float32)
    first, again = trained("multi_label_classification", bias)
    assert first.classifier.bias.tolist() == bias.tolist()
    assert again(["x", "y", "z"], bias=-bias).classifier.bias.tolist() == bias.tolist()
    assert again(["a", "b", "c"], bias=-bias).classifier.bias.tolist() == (-bias).tolist()
    first.bert.save_pretrained(tmp_path / "encoder")
    assert again(["x", "y", "z"], bias=bias, folder="encoder").classifier.bias.tolist() == bias.tolist()


@pytest.mark.parametrize(
    "files",
    [
        ("bert_model.ckpt.index", "config.json"),
        ("tf_model.h5", "config.json"),
        ("adapter_config.json", "adapter_model.safetensors"),
        ("README.md",),
    ],
)
def test_a_folder_of_other_weights_is_told_what_to_do(tmp_path, files):
    for name in files:
        (tmp_path / name).write_text('{"model_type": "bert"}')
    remedies = "merge LoRA weights with peft .*, convert those of TensorFlow with transformers 4"
    with pytest.raises(InputError, match=f"(?s)could not be loaded: .*{remedies}"):
        build_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), LABELS, 32)


class Hub(SimpleHTTPRequestHandler):
    """Answers as a hub does: ORG/NAME/resolve/REVISION/FILE, with the headers that its clients ask for, and
    what a model is."""

    asked: list[str] = []  # noqa: RUF012

    def translate_path(self, path: str) -> str:
        return super().translate_path(re.sub("/resolve/[^/]+/", "/", path))

    def end_headers(self) -> None:
        self.send_header("X-Repo-Commit", "0" * 40)
        if not Path(self.translate_path(self.path)).exists():
            self.send_header("X-Error-Code", "EntryNotFound" if "org/bert" in self.path else "RepoNotFound")
        self.send_header("ETag", f'"{abs(hash(self.path)):x}"')
        super().end_headers()

    def do_GET(self) -> None:
        Hub.asked.append(self.path)
        if self.path.split("?")[0] != "/api/models/org/bert":
            return super().do_GET()
        files = [{"rfilename": path.name} for path in Path(self.directory, "org", "bert").iterdir()]
        content = json.dumps({"id": "org/bert", "sha": "0" * 40, "siblings": files, "tags": []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        SimpleHTTPRequestHandler.end_headers(self)
        self.wfile.write(content)
        return None

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def hub(tmp_path) -> Iterator[str]:
    """The address of a hub on this machine with the model org/bert."""
    save_checkpoint(tmp_path / "hub" / "org" / "bert")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(tmp_path / "hub")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Hub.asked.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_mirror_is_asked_and_its_storage_is_not_passed_by(hub, monkeypatch, tmp_path):
    # The library makes both of HF_ENDPOINT when it is imported
    monkeypatch.setattr(constants, "ENDPOINT", hub)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", hub)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cached"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    assert checkpoint_place(ModelConfig(name="org/bert"), str(tmp_path)) == "org/bert"
    assert "/org/bert/resolve/main/config.json" in Hub.asked
    assert constants.HF_HUB_DISABLE_XET
    with pytest.raises(InputError, match="'org/other' could not be loaded from http://127.0.0.1"):
        checkpoint_place(ModelConfig(name="org/other"), str(tmp_path))


def test_without_the_hub_the_error_names_three_ways_out(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as error:
        checkpoint_place(ModelConfig(name="hfl/chinese-macbert-base"), str(tmp_path))
    message = str(error.value)
    assert all(part in message for part in ("e5-small-zh", "a folder", "HF_ENDPOINT=", "cache"))


def test_a_missing_folder_is_no_hub_name(tmp_path):
    with pytest.raises(InputError, match="there is no such folder"):
        checkpoint_place(ModelConfig(name=str(tmp_path / "none")), str(tmp_path))


@pytest.mark.slow
def test_a_whole_run_starts_from_a_mirror(hub, tmp_path):
    """In a separate process: the libraries read HF_ENDPOINT when they are imported."""
    rows = write_tiny(tmp_path / "rows.tsv")
    words = [sys.executable, str(ROOT / "run_single.py"), f"--data.train={rows}", "--model.name=org/bert"]
    words += split("--train.max_steps 2 --data.max_length 24 --train.device cpu --output.dir run")
    proxy = {"NO_PROXY": "127.0.0.1"}
    environment = os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home")} | proxy
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300, "check": False}
    run = subprocess.run(words, env=environment, **options)
    assert run.returncode == 0, run.stderr
    assert "Settings chosen for you: train.learning_rate 0.0002" in run.stderr
    assert "(for org/bert, single texts, 2 steps in an epoch)" in run.stderr
    saved = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert {key: saved[key] for key in SAVED["bert"]} == SAVED["bert"]
    offline = environment | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}
    words[-1] = "again"
    run = subprocess.run(words, env=offline, **options)
    assert run.returncode == 0, run.stderr
