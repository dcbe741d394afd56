"""Models from settings and from checkpoints: folders, a hub, a mirror, finished runs: python -m pytest
tests/model/test_pretrained.py"""

from __future__ import annotations

import json
import logging
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from app.batching.loader import collate
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.classifier import Classifier
from app.model.pretrained import build_model, check_passes, checkpoint_place, save_model
from app.prediction.torch_runtime import load_checkpoint
from tests.saved_classifier import save_checkpoint
from tests.tiny import LABELS, SIZES, tiny_model, tiny_tokenizer, token_rows

NAMES = ["x", "y", "z"]
CANNOT_LOAD = (
    "model.name must be e5-small-zh, a hub name or a folder with a checkpoint; .* could not be loaded"
)
ROWS = token_rows([5, 9, 3, 20])


def build(config=None, labels=LABELS, max_length=32, task=None, bias=None, **settings) -> Classifier:
    settings = ModelConfig(config={} if config is None else config, **settings)
    return build_model(settings, tiny_tokenizer(), labels, max_length, task, bias).eval()


def logits(model, packed: bool = True) -> torch.Tensor:
    with torch.inference_mode():
        return model(**collate(ROWS, None, model.layout(packed)))


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    """A folder with a trained classifier, written by transformers alone, with weights of another scale than
    random ones."""
    torch.manual_seed(7)
    names = {"num_labels": 3, "id2label": dict(enumerate(NAMES))}
    config = BertConfig(vocab_size=21, **SIZES | {"num_hidden_layers": 3}, initializer_range=0.3, **names)
    folder = tmp_path / "checkpoint"
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def with_weights(folder: Path, weights: dict) -> None:
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def change(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def test_our_own_folder_loads_again_without_a_trace_of_ours(tmp_path, capfd):
    model = tiny_model("roberta", pad_id=1)
    save_model(tmp_path, model.model, model.model.state_dict(), tiny_tokenizer(1))
    text = (tmp_path / "config.json").read_text()
    assert "packed_rows" not in text
    assert json.loads(text)["architectures"] == ["RobertaForSequenceClassification"]
    again = build_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(1), LABELS, 32).eval()
    assert torch.equal(logits(again), logits(model))
    assert capfd.readouterr() == ("", ""), "saving and loading are silent"
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert plain.config._attn_implementation == "sdpa"
    with torch.inference_mode():
        expected = plain(**collate(ROWS, None, model.layout(False))).logits
    torch.testing.assert_close(expected, logits(model), atol=1e-5, rtol=0)
    # safetensors alone would keep the weights to their owner
    assert len({path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}) == 1
    assert not (tmp_path / ".model").exists()


@pytest.mark.parametrize("source", ["random", "checkpoint"])
@pytest.mark.parametrize("key", ["hiden_size", "to_dict", "num_labels", "id2label", "dtype"])
def test_keys_that_cannot_be_set(source, key, checkpoint):
    close = "; did you mean 'hidden_size'" if key == "hiden_size" else ""
    with pytest.raises(InputError, match=f"a bert model has no key '{key}' that can be set{close}"):
        build({key: 3}, name=str(checkpoint) if source == "checkpoint" else None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": {"hidden_size": "wide"}}, "expected int, got str"),
        ({"config": {"hidden_size": 0}}, "does not make a bert model for this data.task"),
        ({"config": {"num_attention_heads": 3}}, "not a multiple of the number of attention heads"),
        ({"config": {"num_attention_heads": -1}}, "the model cannot classify a text"),
        ({"config": {"type_vocab_size": 0}}, "the model cannot classify a text"),
        ({"config": {"hidden_act": "reul"}}, "reul"),
        ({"config": {"hidden_dropout_prob": 2.0}}, "dropout probability"),
        ({"config": {"max_position_embeddings": 0}}, "at most the model's 0 positions, found 32"),
        ({"config": {"vocab_size": 3}}, "embeddings for 3 tokens and the tokenizer's ids go up to 20"),
        ({"architecture": "robert"}, "'robert' is not a model type of transformers; did you mean 'roberta'?"),
        ({"architecture": "vit"}, "model.config does not make a vit model for this data.task"),
    ],
)
def test_settings_that_make_no_model(settings, message):
    sizes = SIZES if "config" in settings else {}
    with pytest.raises(InputError, match=message):
        check_passes(build(**settings | {"config": sizes | settings.get("config", {})}), [2, 5, 3])


@pytest.mark.parametrize("rate", [0.37, 0.0])
@pytest.mark.parametrize("source", ["random", "checkpoint"])
def test_dropout_setting_sets_every_dropout(source, rate, checkpoint):
    settings = {"name": str(checkpoint)} if source == "checkpoint" else {"config": SIZES}
    model = build(dropout=rate, **settings)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {rate}
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
        assert getattr(model.model.config, name) == rate


@pytest.mark.parametrize(
    ("architecture", "pad_id", "longest"), [("bert", 0, 20), ("roberta", 0, 19), ("roberta", 1, 18)]
)
def test_texts_longer_than_the_positions_are_refused(architecture, pad_id, longest):
    settings = ModelConfig(architecture=architecture, config=SIZES | {"max_position_embeddings": 20})
    model = build_model(settings, tiny_tokenizer(pad_id), LABELS, longest).eval()
    # The longest row runs
    for packed in (False, True):
        assert model(**collate(token_rows([longest, 2]), None, model.layout(packed))).shape == (2, 3)
    with pytest.raises(InputError, match=f"at most the model's {longest} positions, found {longest + 1}"):
        build_model(settings, tiny_tokenizer(pad_id), LABELS, longest + 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 400\n"),
        *(("pytorch_model.bin", b"no weights at all" * 20), ("config.json", b"{}"), ("config.json", None)),
        *((name, b'{"model_type": "bert"}') for name in ("tf_model.h5", "adapter_config.json")),
    ],
)
def test_a_broken_checkpoint_is_one_error_with_the_remedy(checkpoint, name, content):
    """Also one with weights of another kind only."""
    if not (checkpoint / name).exists():
        (checkpoint / "model.safetensors").unlink()
    if content is None:
        (checkpoint / name).unlink()
    else:
        (checkpoint / name).write_bytes(content)
    remedy = "a whole checkpoint of torch is needed: config.* merge LoRA .*, convert those of TensorFlow"
    with pytest.raises(InputError, match=f"(?s){CANNOT_LOAD}: .*; {remedy}"):
        build(name=str(checkpoint))


def lora_beside(weights: dict) -> dict:
    """Return weights with LoRA ones beside the matrices, as peft names them in a model."""
    queries = [key for key in weights if "query.weight" in key]
    names = [key.replace("weight", f"lora_{one}.default.weight") for key in queries for one in "AB"]
    return weights | {name: torch.ones(4, 32) for name in names}


def bare(weights: dict) -> dict:
    return {key[5:]: value for key, value in weights.items() if key.startswith("bert.")}


def only(part: str):
    return lambda weights: {key: value for key, value in weights.items() if part in key}


MISSING = r"no weights for \d+ of the 53 of its encoder"
# What is changed in the weights, and in config.json, and what is then said
UNFIT = {
    "five of three layers": (dict, {"num_hidden_layers": 5}, r"no weights for 32 of the 85 of its encoder"),
    "two of three layers": (dict, {"num_hidden_layers": 2}, r"not have, such as bert\.encoder\.layer\.2"),
    "an encoder alone": (bare, {"num_hidden_layers": 2}, r"such as encoder\.layer\.2"),
    "LoRA beside the matrices": (lora_beside, {}, r"lora_A"),
    "LoRA of a whole model": (
        lambda weights: {f"base_model.model.{key}": value for key, value in lora_beside(weights).items()},
        {},
        r"lora_A",
    ),
    "another part": (lambda weights: weights | {"bert.embeddings.t": torch.ones(2)}, {}, r"embeddings\.t"),
    "foreign names": (lambda weights: {f"a.{key}": value for key, value in weights.items()}, {}, MISSING),
    **{f"{part} only": (only(part), {}, MISSING) for part in ("embeddings.w", "dense", "bias")},
    **{
        key: (dict, {key: value}, r"has shape \(.*\), and \(.*\) is needed")
        for key, value in (("intermediate_size", 96), ("max_position_embeddings", 70), ("type_vocab_size", 5))
    },
}


@pytest.mark.parametrize("fault", UNFIT)
def test_weights_that_do_not_fit_their_configuration_are_refused(checkpoint, fault):
    changed, config, found = UNFIT[fault]
    with_weights(checkpoint, changed(load_file(checkpoint / "model.safetensors")))
    change(checkpoint / "config.json", **config)
    for load in (lambda: build(name=str(checkpoint)), lambda: load_checkpoint(checkpoint)):
        with pytest.raises(InputError, match=f"must be those of a bert model .* found .*{found}.*; a whole "):
            load()


def test_a_few_missing_weights_are_new_with_a_warning(checkpoint, caplog):
    weights = load_file(checkpoint / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.bias"]
    with_weights(checkpoint, weights)
    build(name=str(checkpoint))
    found = "no weights for 1 of the 53 of its encoder, such as bert.encoder.layer.1.output.dense.bias"
    assert found in caplog.text


def test_a_trained_head_of_another_size_is_refused_in_prediction(checkpoint):
    change(checkpoint / "config.json", id2label={"0": "x", "1": "y"}, label2id={"x": 0, "y": 1})
    with pytest.raises(InputError, match=r"has shape \(.*\), and \(.*\) is needed; correct .*config.json"):
        load_checkpoint(checkpoint)


def test_a_model_of_other_labels_keeps_its_encoder_and_gets_a_new_head(checkpoint, caplog):
    caplog.set_level(logging.INFO)
    first = load_file(checkpoint / "model.safetensors")
    again = partial(build, name=str(checkpoint), task="multi_label_classification")
    bias = np.array([-3.0, -1.0, 0.5], np.float32)
    kept = again(labels=NAMES, bias=bias).model.classifier
    assert torch.equal(kept.weight, first["classifier.weight"])
    assert torch.equal(kept.bias, first["classifier.bias"])
    assert caplog.messages == []
    for labels in (["a", "b", "c"], ["z", "y", "x"], ["a", "b"]):
        caplog.clear()
        other = again(labels=labels).model
        assert caplog.messages == [
            f"{checkpoint} was trained on other labels (x, y, z): its encoder is kept, the head is new."
        ]
        assert other.config.id2label == dict(enumerate(labels))
        assert other.config.label2id == {name: index for index, name in enumerate(labels)}
        assert not torch.equal(other.classifier.weight[:2], first["classifier.weight"][:2])
        assert not other.classifier.bias.any()
        for name, weight in other.bert.state_dict().items():
            assert torch.equal(first[f"bert.{name}"], weight)
    # Only a new head starts with a given bias
    assert again(labels=["a", "b", "c"], bias=bias).model.classifier.bias.tolist() == bias.tolist()
    with_weights(checkpoint, {name: value for name, value in first.items() if name.startswith("bert.")})
    assert again(labels=NAMES, bias=bias).model.classifier.bias.tolist() == bias.tolist()


class Hub(SimpleHTTPRequestHandler):
    """Answers as a hub does: ORG/NAME/resolve/REVISION/FILE, with the headers that its clients ask for."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(re.sub("/resolve/[^/]+/", "/", path))

    def end_headers(self) -> None:
        self.send_header("X-Repo-Commit", "0" * 40)
        if not Path(self.translate_path(self.path)).exists():
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("ETag", f'"{abs(hash(self.path)):x}"')
        super().end_headers()

    def log_message(self, *_) -> None:
        pass


def test_a_mirror_is_asked_and_its_storage_is_not_passed_by(monkeypatch, tmp_path):
    save_checkpoint(tmp_path / "hub" / "org" / "bert")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(tmp_path / "hub")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub = f"http://127.0.0.1:{server.server_port}"
    # The library makes both of HF_ENDPOINT when it is imported
    monkeypatch.setattr(constants, "ENDPOINT", hub)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", hub)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cached"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    assert checkpoint_place(ModelConfig(name="org/bert"), str(tmp_path)) == "org/bert"
    assert constants.HF_HUB_DISABLE_XET
    with pytest.raises(InputError, match=f"'org/other' could not be loaded from {hub}"):
        checkpoint_place(ModelConfig(name="org/other"), str(tmp_path))
    server.shutdown()


def test_without_the_hub_the_error_names_three_ways_out(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="e5-small-zh, .*a folder.*modelscope.*HF_ENDPOINT="):
        checkpoint_place(ModelConfig(name="hfl/chinese-macbert-base"), str(tmp_path))
    with pytest.raises(InputError, match="there is no such folder"):
        checkpoint_place(ModelConfig(name=str(tmp_path / "none")), str(tmp_path))
