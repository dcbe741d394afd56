"""Models from settings and from checkpoints: python -m pytest tests/model/test_model.py"""

import json
import logging
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
)

from app.batching.collate import collate
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.classifier import Classifier
from app.model.pretrained import build_model, save_model
from app.prediction.saved_model import load_checkpoint
from tests.tiny import LABELS, SIZES, tiny_model, tiny_tokenizer, token_rows


def build(config=None, labels=LABELS, max_length=32, **settings) -> Classifier:
    settings = ModelConfig(config={} if config is None else config, **settings)
    return build_model(settings, tiny_tokenizer(), labels, max_length).eval()


def logits(model, packed: bool = True) -> torch.Tensor:
    with torch.inference_mode():
        return model(**collate(token_rows([5, 9, 3, 20]), None, model.layout(packed)))


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    """A folder with a trained classifier, written by transformers alone, with weights of another scale than
    random ones."""
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=21,
        **SIZES | {"num_hidden_layers": 3},
        initializer_range=0.3,
        num_labels=3,
        id2label={0: "x", 1: "y", 2: "z"},
    )
    folder = tmp_path / "checkpoint"
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def with_weights(folder: Path, weights: dict, name: str = "model.safetensors") -> Path:
    (folder / "model.safetensors").unlink()
    if name.endswith(".bin"):
        torch.save(weights, folder / name)
    else:
        save_file(weights, folder / name, metadata={"format": "pt"})
    return folder


def change(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def test_random_model_follows_its_settings():
    model = build(SIZES, architecture="bert")
    config = model.model.config
    assert {key: getattr(config, key) for key in SIZES} == SIZES
    assert (config.vocab_size, config.pad_token_id) == (21, 0)
    assert config.id2label == dict(enumerate(LABELS))
    assert config.label2id == {name: index for index, name in enumerate(LABELS)}
    assert config.num_labels == 3
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert logits(model).shape == (4, 3)


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("albert", {"embedding_size": 16}),
        ("deberta-v2", {}),
        ("distilbert", {"n_layers": 2}),
        ("mobilebert", {}),
    ],
)
def test_other_architectures_run_padded(architecture, config):
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
    if architecture == "distilbert":
        sizes = {"dim": 32, "n_heads": 4, "hidden_dim": 64}
    model = build(sizes | config, architecture=architecture)
    rows = token_rows([5, 9, 3])
    with torch.inference_mode():
        pairs = model(**collate(rows, [2, 4, 3], model.layout(False)))
        alone = torch.cat([model(**collate([row], None, model.layout(False))) for row in rows])
    assert pairs.shape == (3, 3)
    torch.testing.assert_close(logits(model, packed=False)[:3], alone, atol=1e-5, rtol=0)
    assert not model.can_pack
    assert architecture in model.why_padded


def test_checkpoint_gives_the_logits_of_plain_transformers(checkpoint):
    model = build(name=str(checkpoint), labels=["x", "y", "z"])
    plain = AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    inputs = collate(token_rows([5, 9, 3, 20]), None, model.layout(False))
    with torch.inference_mode():
        expected = plain(**inputs).logits
    torch.testing.assert_close(logits(model, packed=False), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(logits(model, packed=True), expected, atol=1e-5, rtol=0)


def test_our_own_folder_loads_again_without_a_trace_of_ours(tmp_path):
    model = tiny_model("roberta", pad_id=1)
    save_model(tmp_path, model.model, model.model.state_dict(), tiny_tokenizer(1))
    text = (tmp_path / "config.json").read_text()
    assert "packed_rows" not in text
    assert json.loads(text)["architectures"] == ["RobertaForSequenceClassification"]
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert plain.config._attn_implementation == "sdpa"
    inputs = collate(token_rows([5, 9, 3, 20]), None, model.layout(False))
    with torch.inference_mode():
        torch.testing.assert_close(plain(**inputs).logits, logits(model), atol=1e-5, rtol=0)
    again = build_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(1), LABELS, 32).eval()
    assert torch.equal(logits(again), logits(model))


def test_saving_is_silent_and_readable_by_others(tmp_path, capfd):
    model = tiny_model()
    save_model(tmp_path, model.model, model.model.state_dict(), tiny_tokenizer())
    build(name=str(tmp_path))
    assert capfd.readouterr() == ("", "")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    # safetensors alone would keep the weights to their owner
    assert len(set(modes.values())) == 1, modes
    assert not (tmp_path / ".model").exists()


def test_masked_language_model_gets_a_head_and_keeps_its_encoder(tmp_path, caplog, capfd):
    plain = BertForMaskedLM(BertConfig(vocab_size=21, **SIZES))
    plain.save_pretrained(tmp_path)
    capfd.readouterr()
    model = build(name=str(tmp_path))
    for name, value in plain.bert.state_dict().items():
        assert torch.equal(model.model.bert.state_dict()[name], value), name
    # A new head is what one expects
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_fewer_layers_of_a_checkpoint_are_its_first(checkpoint):
    model = build({"num_hidden_layers": 2}, name=str(checkpoint))
    weights = load_file(checkpoint / "model.safetensors")
    assert len(model.model.bert.encoder.layer) == 2
    for name, value in model.model.bert.encoder.state_dict().items():
        assert torch.equal(value, weights[f"bert.encoder.{name}"]), name


def test_more_layers_than_the_checkpoint_has_are_reported(checkpoint, caplog):
    with caplog.at_level(logging.WARNING):
        build({"num_hidden_layers": 5}, name=str(checkpoint))
    assert "has no weights for 32 of the 85 of its encoder, such as bert.encoder.layer.3" in caplog.text


def test_half_precision_checkpoint_is_trained_in_fp32(checkpoint):
    weights = {name: value.half() for name, value in load_file(checkpoint / "model.safetensors").items()}
    model = build(name=str(with_weights(checkpoint, weights)))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("source", ["random", "checkpoint"])
def test_unknown_key_names_the_nearest(source, checkpoint):
    name = str(checkpoint) if source == "checkpoint" else None
    with pytest.raises(InputError, match="a bert model has no key 'hiden_size'; did you mean 'hidden_size'?"):
        build({"hiden_size": 3}, name=name)
    # An attribute, but no setting
    with pytest.raises(InputError, match="has no key 'to_dict'"):
        build({"to_dict": 3}, name=name)


@pytest.mark.parametrize("key", ["num_labels", "id2label", "label2id", "problem_type"])
def test_labels_cannot_be_set_in_the_model(key):
    with pytest.raises(InputError, match=f"'{key}' cannot be set: labels follow from the data"):
        build({key: 7})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_size": "wide"}, "expected int, got str"),
        ({"num_attention_heads": 3}, "not a multiple of the number of attention heads"),
        ({"hidden_act": "reul"}, "reul"),
        ({"hidden_dropout_prob": 2.0}, "dropout probability"),
        ({"vocab_size": 3}, "embeddings for 3 tokens and the tokenizer's ids go up to 20"),
    ],
)
def test_settings_that_make_no_model(config, message):
    with pytest.raises(InputError, match=message):
        build(SIZES | config)


def test_unknown_architecture_names_the_nearest():
    with pytest.raises(
        InputError, match="'robert' is not a model type of transformers; did you mean 'roberta'?"
    ):
        build(architecture="robert")
    with pytest.raises(InputError, match="model.config does not make a vit classifier"):
        build(architecture="vit")


@pytest.mark.parametrize("rate", [0.37, 0.0])
@pytest.mark.parametrize("source", ["random", "checkpoint"])
def test_dropout_setting_sets_every_dropout(source, rate, checkpoint):
    settings = {"name": str(checkpoint)} if source == "checkpoint" else {"config": SIZES}
    model = build(dropout=rate, **settings)
    rates = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {rate}
    config = model.model.config
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
        assert getattr(config, name) == rate


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


def test_weights_of_torch_save_load(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    expected = logits(build(name=str(checkpoint), labels=["x", "y", "z"]))
    folder = with_weights(checkpoint, weights, "pytorch_model.bin")
    assert torch.equal(logits(build(name=str(folder), labels=["x", "y", "z"])), expected)


class Evil:
    """What a hostile checkpoint would hold: reading it as a pickle makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("how", ["pickle", "torch.save", "torch.save, old format"])
def test_a_pickle_does_not_run(checkpoint, tmp_path, how):
    trace = tmp_path / "trace"
    (checkpoint / "model.safetensors").unlink()
    path = checkpoint / "pytorch_model.bin"
    if how == "pickle":
        path.write_bytes(pickle.dumps(Evil(trace), protocol=2))
    else:
        torch.save({"bert": Evil(trace)}, path, _use_new_zipfile_serialization=how == "torch.save")
    with pytest.raises(InputError, match="holds more than tensors") as error:
        build(name=str(checkpoint))
    assert not trace.exists()
    # Never advise to switch the guard off
    assert "weights_only" not in str(error.value)
    # The trap does work
    pickle.loads(pickle.dumps(Evil(trace)))
    assert trace.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 400\n"),
        ("pytorch_model.bin", b""),
        ("pytorch_model.bin", b"no weights at all" * 20),
        ("config.json", b"{"),
        ("config.json", b"[1]"),
        ("config.json", b"{}"),
        ("config.json", b'{"model_type": "nothing"}'),
        ("config.json", b'{"model_type": "vit"}'),
        ("config.json", b'{"model_type": "bert", "hidden_size": "wide"}'),
    ],
)
def test_broken_checkpoint_is_refused(checkpoint, name, content):
    if name == "pytorch_model.bin":
        (checkpoint / "model.safetensors").unlink()
    (checkpoint / name).write_bytes(content)
    with pytest.raises(InputError, match="model.name must be a hub name or a folder with a checkpoint"):
        build(name=str(checkpoint))


@pytest.mark.parametrize("what", ["no folder", "empty", "no weights", "cut off weights", "a file"])
def test_wrong_folder_is_refused(checkpoint, tmp_path, what):
    folder = tmp_path / "wrong"
    if what == "empty":
        folder.mkdir()
    elif what == "no weights":
        shutil.copytree(checkpoint, folder)
        (folder / "model.safetensors").unlink()
    elif what == "cut off weights":
        shutil.copytree(checkpoint, folder)
        os.truncate(folder / "model.safetensors", 10_000)
    elif what == "a file":
        folder.write_text("no checkpoint")
    with pytest.raises(InputError, match="could not be loaded"):
        build(name=str(folder))


def test_weights_of_another_size_are_refused(checkpoint):
    with pytest.raises(
        InputError, match=r"do not fit model.config: bert.* has shape \(.*32.*\), and \(.*64.*\) is needed"
    ):
        build({"hidden_size": 64}, name=str(checkpoint))


def test_weights_under_foreign_names_are_refused_not_ignored(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    folder = with_weights(checkpoint, {f"encoder_of_ours.{name}": value for name, value in weights.items()})
    with pytest.raises(InputError, match="no weights for 53 of the 53 of .*, found encoder_of_ours.bert"):
        build(name=str(folder))


def lora_beside(weights: dict) -> dict:
    """Return weights with LoRA ones beside the matrices, as peft names them in a model."""
    queries = [key for key in weights if "query.weight" in key]
    names = [key.replace("weight", f"lora_{one}.default.weight") for key in queries for one in "AB"]
    return weights | {name: torch.ones(4, 32) for name in names}


def lora_as_saved(weights: dict) -> dict:
    """Return weights as peft saves a whole model that is not merged."""
    return {
        f"base_model.model.{key}".replace("query.weight", "query.base_layer.weight"): value
        for key, value in lora_beside(weights).items()
    }


def without_prefix(weights: dict) -> dict:
    return {key.removeprefix("bert."): value for key, value in weights.items() if key.startswith("bert.")}


def with_another_part(weights: dict) -> dict:
    return weights | {"bert.embeddings.task.weight": torch.ones(2)}


UNUSED = {
    "two of three layers": (dict, {"num_hidden_layers": 2}, "bert.encoder.layer.2"),
    "one of three layers": (dict, {"num_hidden_layers": 1}, "bert.encoder.layer.1"),
    "an encoder alone": (without_prefix, {"num_hidden_layers": 2}, "encoder.layer.2"),
    "LoRA beside the matrices": (lora_beside, {}, "LoRA weights, such as"),
    "LoRA of a whole model": (lora_as_saved, {}, "LoRA weights, such as"),
    "another part": (with_another_part, {}, "task.weight"),
}


@pytest.mark.parametrize("fault", UNUSED)
def test_weights_of_an_encoder_that_the_model_does_not_take_are_refused(checkpoint, fault):
    changed, config, named = UNUSED[fault]
    with_weights(checkpoint, changed(load_file(checkpoint / "model.safetensors")))
    change(checkpoint / "config.json", **config)
    tiny_tokenizer().save_pretrained(checkpoint)
    for load in (lambda: build(name=str(checkpoint)), lambda: load_checkpoint(checkpoint)):
        with pytest.raises(InputError, match="; (correct its config.json|merge them)") as error:
            load()
        assert named in str(error.value)


def test_heads_for_something_else_may_be_in_the_file(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    expected = logits(build(name=str(checkpoint), labels=["x", "y", "z"]))
    heads = {"cls.predictions.bias": torch.ones(21), "lm_head.weight": torch.ones(2, 2)}
    with_weights(checkpoint, weights | heads)
    assert torch.equal(logits(build(name=str(checkpoint), labels=["x", "y", "z"])), expected)


@pytest.mark.parametrize("kept", ["embeddings.w", "dense", "bias"])
def test_a_checkpoint_without_much_of_its_encoder_is_refused(checkpoint, kept):
    weights = load_file(checkpoint / "model.safetensors")
    with_weights(checkpoint, {key: value for key, value in weights.items() if kept in key})
    tiny_tokenizer().save_pretrained(checkpoint)
    for load in (lambda: build(name=str(checkpoint)), lambda: load_checkpoint(checkpoint)):
        with pytest.raises(InputError, match=r"has no weights for \d+ of the 53 of its encoder"):
            load()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intermediate_size", 96),
        ("max_position_embeddings", 70),
        ("type_vocab_size", 5),
        ("id2label", {"0": "x", "1": "y"}),
    ],
)
def test_a_wrong_size_in_the_configuration_names_the_weight(checkpoint, key, value):
    values = {key: value} | ({"label2id": {"x": 0, "y": 1}} if key == "id2label" else {})
    change(checkpoint / "config.json", **values)
    tiny_tokenizer().save_pretrained(checkpoint)
    problem = r"has shape \(.*\), and \(.*\) is needed; correct .*config.json"
    with pytest.raises(InputError, match=problem):
        load_checkpoint(checkpoint)
    if key != "id2label":
        with pytest.raises(InputError, match=problem):
            build(name=str(checkpoint))


def test_checkpoint_with_old_norm_names_is_saved_with_the_models_own(checkpoint, tmp_path):
    """bert-base-chinese still calls its norms gamma and beta; what we save must load into the model again."""
    weights = load_file(checkpoint / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }
    expected = logits(build(name=str(checkpoint), labels=["x", "y", "z"]))
    model = build(name=str(with_weights(checkpoint, old)), labels=["x", "y", "z"])
    assert torch.equal(logits(model), expected)
    folder = tmp_path / "saved"
    folder.mkdir()
    save_model(folder, model.model, model.model.state_dict(), tiny_tokenizer())
    saved = load_file(folder / "model.safetensors")
    model.load_state_dict({f"model.{name}": value for name, value in saved.items()})
