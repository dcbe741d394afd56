"""Models from settings and from checkpoints: python -m pytest tests/model/test_model.py"""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from app.batching.loader import collate
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.classifier import Classifier, check_passes
from app.model.pretrained import build_model, save_model
from app.prediction.torch_runtime import load_checkpoint
from tests.tiny import LABELS, SIZES, tiny_model, tiny_tokenizer, token_rows

NAMES = ["x", "y", "z"]
CANNOT_LOAD = (
    "model.name must be e5-small-zh, a hub name or a folder with a checkpoint; .* could not be loaded"
)


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


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        *(("albert", SIZES | {"embedding_size": 16}), ("deberta-v2", SIZES), ("mobilebert", SIZES)),
        ("distilbert", {"dim": 32, "n_heads": 4, "hidden_dim": 64, "n_layers": 2}),
    ],
)
def test_other_architectures_run_padded(architecture, config):
    model, rows = build(config, architecture=architecture), token_rows([5, 9, 3])
    with torch.inference_mode():
        pairs = model(**collate(rows, [2, 4, 3], model.layout(False)))
        alone = torch.cat([model(**collate([row], None, model.layout(False))) for row in rows])
    assert pairs.shape == (3, 3)
    torch.testing.assert_close(logits(model, packed=False)[:3], alone, atol=1e-5, rtol=0)
    assert not model.can_pack
    assert architecture in model.why_padded


def test_checkpoint_gives_the_logits_of_plain_transformers(checkpoint):
    model = build(name=str(checkpoint), labels=NAMES)
    plain = AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    with torch.inference_mode():
        expected = plain(**collate(token_rows([5, 9, 3, 20]), None, model.layout(False))).logits
    torch.testing.assert_close(logits(model, packed=False), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(logits(model, packed=True), expected, atol=1e-5, rtol=0)


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
    inputs = collate(token_rows([5, 9, 3, 20]), None, model.layout(False))
    with torch.inference_mode():
        torch.testing.assert_close(plain(**inputs).logits, logits(model), atol=1e-5, rtol=0)
    # safetensors alone would keep the weights to their owner
    assert len({path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}) == 1
    assert not (tmp_path / ".model").exists()


def test_fewer_or_more_layers_than_a_checkpoint_has(checkpoint, caplog):
    model = build({"num_hidden_layers": 2}, name=str(checkpoint))
    weights = load_file(checkpoint / "model.safetensors")
    assert len(model.model.bert.encoder.layer) == 2
    for name, value in model.model.bert.encoder.state_dict().items():
        assert torch.equal(value, weights[f"bert.encoder.{name}"]), name
    assert not caplog.text
    build({"num_hidden_layers": 5}, name=str(checkpoint))
    assert "has no weights for 32 of the 85 of its encoder, such as bert.encoder.layer.3" in caplog.text


@pytest.mark.parametrize("source", ["random", "checkpoint"])
def test_keys_that_cannot_be_set(source, checkpoint):
    name = str(checkpoint) if source == "checkpoint" else None
    for key, problem in {
        "hiden_size": "a bert model has no key 'hiden_size'; did you mean 'hidden_size'?",
        # An attribute, but no setting
        "to_dict": "has no key 'to_dict'",
        **dict.fromkeys(
            ("num_labels", "id2label", "label2id", "problem_type"), "cannot be set: labels follow"
        ),
    }.items():
        with pytest.raises(InputError, match=problem):
            build({key: 3}, name=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": {"hidden_size": "wide"}}, "expected int, got str"),
        ({"config": {"num_attention_heads": 3}}, "not a multiple of the number of attention heads"),
        ({"config": {"hidden_act": "reul"}}, "reul"),
        ({"config": {"hidden_dropout_prob": 2.0}}, "dropout probability"),
        ({"config": {"vocab_size": 3}}, "embeddings for 3 tokens and the tokenizer's ids go up to 20"),
        ({"architecture": "robert"}, "'robert' is not a model type of transformers; did you mean 'roberta'?"),
        ({"architecture": "vit"}, "model.config does not make a vit classifier"),
    ],
)
def test_settings_that_make_no_model(settings, message):
    sizes = SIZES if "config" in settings else {}
    with pytest.raises(InputError, match=message):
        build(**settings | {"config": sizes | settings.get("config", {})})


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


def test_weights_in_half_precision_and_what_is_saved(checkpoint):
    """Weights become fp32; what is saved has the model's own names, not the old ones of norms."""
    weights = load_file(checkpoint / "model.safetensors")
    with_weights(
        checkpoint, {name.replace("Norm.weight", "Norm.gamma"): weights[name].half() for name in weights}
    )
    model = build(name=str(checkpoint), labels=NAMES)
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    saved = checkpoint.with_name("saved")
    saved.mkdir()
    save_model(saved, model.model, model.model.state_dict(), tiny_tokenizer())
    assert load_file(saved / "model.safetensors").keys() == weights.keys()


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
        ("model.safetensors", 10_000),
        ("pytorch_model.bin", b""),
        ("pytorch_model.bin", b"no weights at all" * 20),
        ("config.json", b"{"),
        ("config.json", b"[1]"),
        ("config.json", b"{}"),
        ("config.json", b'{"model_type": "nothing"}'),
        ("config.json", b'{"model_type": "vit"}'),
        ("config.json", b'{"model_type": "bert", "hidden_size": "wide"}'),
        ("config.json", None),
        ("model.safetensors", None),
        (".", None),
    ],
)
def test_a_broken_checkpoint_is_one_error_with_the_remedy(checkpoint, name, content):
    if name == "pytorch_model.bin":
        (checkpoint / "model.safetensors").unlink()
    if isinstance(content, bytes):
        (checkpoint / name).write_bytes(content)
    elif content:
        os.truncate(checkpoint / name, content)
    elif name == ".":
        shutil.rmtree(checkpoint)
        checkpoint.write_text("no folder")
    else:
        (checkpoint / name).unlink()
    with pytest.raises(
        InputError, match=f"(?s){CANNOT_LOAD}: .*; a whole checkpoint of torch is needed: config"
    ):
        build(name=str(checkpoint))


def without_prefix(weights: dict) -> dict:
    return {key.removeprefix("bert."): value for key, value in weights.items() if key.startswith("bert.")}


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


def only(part: str):
    return lambda weights: {key: value for key, value in weights.items() if part in key}


MISSING = r"no weights for \d+ of the 53 of its encoder"
# What is changed in the weights, and in config.json, and what is then said
UNFIT = {
    "two of three layers": (
        dict,
        {"num_hidden_layers": 2},
        r"does not have, such as bert\.encoder\.layer\.2",
    ),
    "an encoder alone": (without_prefix, {"num_hidden_layers": 2}, r"such as encoder\.layer\.2"),
    "LoRA beside the matrices": (lora_beside, {}, r"lora_A"),
    "LoRA of a whole model": (lora_as_saved, {}, r"lora_A"),
    "another part": (
        lambda weights: weights | {"bert.embeddings.task.weight": torch.ones(2)},
        {},
        r"task\.w",
    ),
    "foreign names": (
        lambda weights: {f"of_ours.{key}": value for key, value in weights.items()},
        {},
        MISSING,
    ),
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


def test_a_trained_head_of_another_size_is_refused_in_prediction(checkpoint):
    change(checkpoint / "config.json", id2label={"0": "x", "1": "y"}, label2id={"x": 0, "y": 1})
    with pytest.raises(InputError, match=r"has shape \(.*\), and \(.*\) is needed; correct .*config.json"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("max_position_embeddings", 0, "at most the model's 0 positions, found 32"),
        ("type_vocab_size", 0, "the model cannot classify a text"),
        ("chunk_size_feed_forward", "x", "the model cannot classify a text"),
        ("dtype", "float16", r"weights are fp32 \(train\.precision\)"),
        ("num_attention_heads", -1, "the model cannot classify a text"),
        ("hidden_size", 0, "does not make a bert classifier"),
    ],
)
def test_values_that_a_model_cannot_have(key, value, problem):
    with pytest.raises(InputError, match=problem):
        check_passes(build(SIZES | {"max_position_embeddings": 64, key: value}), [2, 5, 3], [2, 5, 6, 7, 3])


def test_a_number_of_a_model_is_finite():
    with pytest.raises(ValueError, match="finite"):
        ModelConfig(config={"hidden_dropout_prob": float("nan")})
