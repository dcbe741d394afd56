"""Models from settings and from checkpoints: folders, a hub, a mirror, finished runs. Those of somebody else
execute nothing: each trap makes a file when it is sprung, and is sprung once on purpose, to show it works."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
import yaml
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from app.batching.collate import collate
from app.config.command_line import load_config
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.build_model import build_model
from app.model.checkpoint import checkpoint_place
from app.model.classifier import Classifier
from app.model.saving import save_model
from app.model.tokenizer import load_tokenizer
from app.model.weight_checks import check_passes
from app.prediction.load_checkpoint import load_checkpoint
from app.prediction.torch_runtime import load_predictor
from app.prediction.trained_model import read_trained_model
from tests.saved_classifier import LABELS as NAMES
from tests.saved_classifier import as_rows, save_checkpoint
from tests.tiny import LABELS, SIZES, tiny_model, tiny_tokenizer, token_rows

CANNOT_LOAD = (
    "model.name must be e5-small-zh, random, a hub name or a folder with a checkpoint; .* could not be loaded"
)
ROWS = token_rows([5, 9, 3, 20])


def build(
    config=None, labels=LABELS, max_length=32, task=None, bias=None, name="random", **settings
) -> Classifier:
    settings = ModelConfig(name, config={} if config is None else config, **settings)
    return build_model(settings, tiny_tokenizer(), labels, max_length, task, bias).eval()


def train_from(folder: Path) -> Classifier:
    """Return the model that a training run would start from."""
    config = ModelConfig(name=str(folder))
    return build_model(config, load_tokenizer(config, None, 32, ""), LABELS, 32)


def logits(model, packed: bool = True) -> torch.Tensor:
    with torch.inference_mode():
        return model(**collate(ROWS, None, model.layout(packed)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with a trained classifier, written by transformers alone."""
    return save_checkpoint(tmp_path_factory.mktemp("saved"), num_hidden_layers=3)


@pytest.fixture
def checkpoint(saved, tmp_path) -> Path:
    """A copy of it, to be spoiled."""
    return shutil.copytree(saved, tmp_path / "checkpoint")


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
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert plain.config._attn_implementation == "sdpa"
    # safetensors alone would keep the weights to their owner
    assert len({path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}) == 1
    assert not (tmp_path / ".model").exists()


@pytest.mark.parametrize("source", ["random", "checkpoint"])
@pytest.mark.parametrize("key", ["hiden_size", "to_dict", "model_type", "num_labels", "id2label", "dtype"])
def test_keys_that_cannot_be_set(source, key, checkpoint):
    close = "; did you mean 'hidden_size'" if key == "hiden_size" else ""
    with pytest.raises(InputError, match=f"a bert model has no key '{key}' that can be set{close}"):
        build({key: 3}, name=str(checkpoint) if source == "checkpoint" else "random")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": {"hidden_size": "wide"}}, "expected int, got str"),
        ({"config": {"hidden_size": 0}}, "does not make a bert model for this data.task"),
        ({"config": {"num_attention_heads": 3}}, "not a multiple of the number of attention heads"),
        ({"config": {"type_vocab_size": 0}}, "the model cannot classify a text"),
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
        check_passes(build(**settings | {"config": sizes | settings.get("config", {})}), [[2, 5, 3]])


# The whole encoder stays; ALBERT's layers share their weights, so that more of them change no shape
OTHER_SHAPES = [("bert", "num_hidden_layers", 1), ("bert", "num_hidden_layers", 3)]
OTHER_SHAPES += [("bert", "num_attention_heads", 8), ("bert", "hidden_size", 16), ("bert", "vocab_size", 30)]
OTHER_SHAPES += [("albert", "num_hidden_layers", 3), ("qwen3", "num_key_value_heads", 4)]


@pytest.mark.parametrize(("architecture", "key", "value"), OTHER_SHAPES)
def test_keys_that_would_change_the_shape_of_pretrained_weights_are_refused(
    tmp_path, architecture, key, value
):
    config = {"num_key_value_heads": 2, "head_dim": 8} if architecture == "qwen3" else {}
    model = tiny_model(architecture, **config)
    save_model(tmp_path, model.model, model.model.state_dict(), tiny_tokenizer())
    with pytest.raises(
        InputError, match=rf"those of its config\.json, found .*{key}: .*--model\.name random"
    ):
        build({key: value}, name=str(tmp_path))


def test_keys_that_change_no_shape_are_applied_to_a_pretrained_model(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    model = build({"hidden_dropout_prob": 0.37}, name=str(checkpoint)).model
    assert model.config.hidden_dropout_prob == model.bert.embeddings.dropout.p == 0.37
    for name, weight in model.bert.state_dict().items():
        assert torch.equal(weights[f"bert.{name}"], weight)


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
    sizes = SIZES | {"max_position_embeddings": 20}
    settings = ModelConfig("random", architecture=architecture, config=sizes)
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
    if not (checkpoint / name).exists():
        (checkpoint / "model.safetensors").unlink()
    if content is None:
        (checkpoint / name).unlink()
    else:
        (checkpoint / name).write_bytes(content)
    remedy = "a whole checkpoint of torch is needed: config.* merge LoRA .*; convert those of TensorFlow"
    with pytest.raises(InputError, match=f"(?s){CANNOT_LOAD}: .*; {remedy}"):
        build(name=str(checkpoint))


def lora_beside(weights: dict) -> dict:
    """Return weights with LoRA ones beside the matrices, as peft names them in a model."""
    queries = [key for key in weights if "query.weight" in key]
    names = []
    for key in queries:
        for matrix in "AB":
            names.append(key.replace("weight", f"lora_{matrix}.default.weight"))
    return weights | {name: torch.ones(4, 32) for name in names}


MISSING = r"no weights for \d+ of the 53 of its encoder"
# What is changed in the weights, and in config.json, and what is then said
UNFIT = {
    "five of three layers": (dict, {"num_hidden_layers": 5}, r"no weights for 32 of the 85 of its encoder"),
    "two of three layers": (dict, {"num_hidden_layers": 2}, r"not have, such as bert\.encoder\.layer\.2"),
    "LoRA beside the matrices": (lora_beside, {}, r"lora_A"),
    "foreign names": (lambda weights: {f"a.{key}": value for key, value in weights.items()}, {}, MISSING),
    "another norm with the same weights": (
        dict,
        {"norm_type": "rms_norm"},
        r"norm_type rms_norm, and transformers has LayerNorm",
    ),
    "norms without biases": (
        lambda weights: {key: value for key, value in weights.items() if "LayerNorm.bias" not in key},
        {},
        r"no weights for bert\.embeddings\.LayerNorm\.bias, so that it was trained with other norms",
    ),
    **{
        key: (dict, {key: value}, r"has shape \(.*\), and \(.*\) is needed")
        for key, value in (("intermediate_size", 96), ("max_position_embeddings", 70), ("type_vocab_size", 5))
    },
}


@pytest.mark.parametrize("fault", UNFIT)
def test_weights_that_do_not_fit_their_configuration_are_refused(checkpoint, fault):
    changed, config, message = UNFIT[fault]
    pattern = f"must be those of a bert model .* found .*{message}.*; a whole "
    with_weights(checkpoint, changed(load_file(checkpoint / "model.safetensors")))
    change(checkpoint / "config.json", **config)
    for load in (lambda: build(name=str(checkpoint)), lambda: load_checkpoint(checkpoint)):
        with pytest.raises(InputError, match=pattern):
            load()


def test_a_few_missing_weights_are_new_with_a_warning(checkpoint, caplog):
    weights = load_file(checkpoint / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.bias"]
    with_weights(checkpoint, weights)
    build(name=str(checkpoint))
    warning = "no weights for 1 of the 53 of its encoder, such as bert.encoder.layer.1.output.dense.bias"
    assert warning in caplog.text


def test_a_model_of_other_labels_keeps_its_encoder_and_gets_a_new_head(checkpoint, caplog):
    caplog.set_level(logging.INFO)
    first = load_file(checkpoint / "model.safetensors")
    again = partial(build, name=str(checkpoint), task="multi_label_classification")
    bias = np.array([-3.0, -1.0, 0.5], np.float32)
    head = again(labels=NAMES, bias=bias).model.classifier
    assert torch.equal(head.weight, first["classifier.weight"])
    assert torch.equal(head.bias, first["classifier.bias"])
    assert caplog.messages == []
    message = f"trained on other labels ({', '.join(NAMES)}): its encoder is kept, the head is new."
    for labels in (["a", "b", "c"], NAMES[::-1], ["a", "b"]):
        caplog.clear()
        model = again(labels=labels).model
        assert caplog.messages == [f"{checkpoint} was {message}"]
        assert model.config.id2label == dict(enumerate(labels))
        assert model.config.label2id == {name: index for index, name in enumerate(labels)}
        assert not torch.equal(model.classifier.weight[:2], first["classifier.weight"][:2])
        assert not model.classifier.bias.any()
        for name, weight in model.bert.state_dict().items():
            assert torch.equal(first[f"bert.{name}"], weight)
    # Only a new head starts with a given bias
    assert again(labels=["a", "b", "c"], bias=bias).model.classifier.bias.tolist() == bias.tolist()
    with_weights(checkpoint, {name: value for name, value in first.items() if name.startswith("bert.")})
    assert again(labels=NAMES, bias=bias).model.classifier.bias.tolist() == bias.tolist()


def test_without_the_hub_the_error_names_a_mirror_and_three_ways_out(monkeypatch, tmp_path):
    """Files come from the mirror too, not from the storage of the hub."""
    values = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": True, "HF_HUB_DISABLE_XET": False}
    for name, value in (values | {"ENDPOINT": "https://mirror"}).items():
        monkeypatch.setattr(constants, name, value)
    ways = "could not be loaded from https://mirror: .*e5-small-zh, .*a folder.*modelscope.*HF_ENDPOINT="
    with pytest.raises(InputError, match=ways):
        checkpoint_place(ModelConfig(name="hfl/chinese-macbert-base"), str(tmp_path))
    assert constants.HF_HUB_DISABLE_XET
    with pytest.raises(InputError, match="there is no such folder"):
        checkpoint_place(ModelConfig(name=str(tmp_path / "none")), str(tmp_path))


class Evil:
    """What a hostile checkpoint would hold: reading it as a pickle makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture
def trace(tmp_path, monkeypatch) -> Path:
    """The file that a trap makes."""
    # transformers copies the code of a checkpoint before it imports it: not into the home folder
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "trace"


def assert_harmless(checkpoint: Path, saved: Path, trace: Path) -> None:
    """Check that a spoiled checkpoint predicts as the good one, can be trained, and springs no trap."""
    rows = as_rows(["abcdef", "b"])
    spoiled, good = (load_predictor(folder, 32, device="cpu") for folder in (checkpoint, saved))
    np.testing.assert_array_equal(spoiled.logits(spoiled.tokenize(rows)), good.logits(good.tokenize(rows)))
    assert "/" not in train_from(checkpoint).model.config._attn_implementation
    assert not trace.exists()


FILE_FORMATS = pytest.mark.parametrize("file_format", ["pickle", "torch.save", "torch.save, old format"])


def write_evil(path: Path, trace: Path, file_format: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if file_format == "pickle":
        path.write_bytes(pickle.dumps(Evil(trace), protocol=2))
    else:
        torch.save({"bert": Evil(trace)}, path, _use_new_zipfile_serialization=file_format == "torch.save")


@FILE_FORMATS
def test_weights_that_are_a_pickle_do_not_run(checkpoint, trace, file_format):
    (checkpoint / "model.safetensors").unlink()
    write_evil(checkpoint / "pytorch_model.bin", trace, file_format)
    with pytest.raises(InputError, match="holds more than tensors") as error:
        train_from(checkpoint)
    # Never advise to switch the guard off
    assert "weights_only" not in str(error.value)
    assert not trace.exists()
    with (checkpoint / "pytorch_model.bin").open("rb") as file:
        pickle.load(file) if file_format == "pickle" else torch.load(file, weights_only=False)
    assert trace.exists()


PICKLES = "pytorch_model.bin training_args.bin optimizer.pt scheduler.pt rng_state.pth model.pt model.pkl"
PICKLES += " adapter_model.bin model.metadata tf_model.h5 added_tokens.pkl state/step-00000001/optimizer.bin"


@FILE_FORMATS
def test_pickles_beside_the_weights_are_never_opened(saved, checkpoint, trace, file_format):
    for name in PICKLES.split():
        write_evil(checkpoint / name, trace, file_format)
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
    # A pipe is not waited for
    index.unlink()
    os.mkfifo(checkpoint / "model.safetensors")
    with pytest.raises(InputError, match="found no weights"):
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
    (checkpoint / "code.py").write_text(CODE.format(trace=str(trace)), encoding="utf-8")
    tokenizer = {"AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}
    change(checkpoint / "tokenizer_config.json", auto_map=tokenizer)
    assert_harmless(checkpoint, saved, trace)
    automatic = {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Model"}
    for model_type in ("bert", "evil"):
        change(checkpoint / "config.json", auto_map=automatic, model_type=model_type)
        with pytest.raises(InputError, match="code of its own, which is never run"):
            load_checkpoint(checkpoint)
        with pytest.raises(InputError, match="code of its own, which is never run"):
            checkpoint_place(ModelConfig(name=str(checkpoint)), "")
    # A run comes to this only after the check above
    with pytest.raises(InputError, match="trust_remote_code"):
        train_from(checkpoint)
    assert not trace.exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", ["kernels-community/evil", "evil/kernel@main:run", "flash_attention_2"])
def test_the_attention_that_a_configuration_names_is_not_fetched(saved, checkpoint, trace, key, value):
    """transformers would fetch a kernel from the hub and run it, whatever trust_remote_code says."""
    change(checkpoint / "config.json", **{key: value})
    assert_harmless(checkpoint, saved, trace)


BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True}
BROKEN = [{"quantization_config": BITS}, {"quantization_config": 5}, {"model_type": ["bert"]}]
BROKEN += [{"hidden_act": "os.system"}, {"num_attention_heads": 0}, {"id2label": ["a", "b", "c"]}]
BROKEN += [{"hidden_size": "wide"}, {"hidden_size": 10**12}, {"tokenizer_class": 5}, {"dtype": "evil"}]
CASES = [(values, "could not be loaded") for values in BROKEN]
# A missing label was a traceback, a repeated one lost a column; the trained head has three
for names, message in (
    ({0: "a", 1: "b", 7: "c"}, "must name each label from 0 to 2"),
    ({0: "a", 1: "a", 2: "b"}, "must name each label from 0 to 2"),
    ({0: "x", 1: "y"}, r"has shape \(.*\), and \(.*\) is needed; correct .*config.json"),
):
    numbers = {name: number for number, name in names.items()}
    CASES.append(({"id2label": names, "label2id": numbers}, message))


@pytest.mark.parametrize(("values", "message"), CASES, ids=str)
def test_broken_configurations_are_errors_and_no_tracebacks(checkpoint, values, message):
    name = "tokenizer_config.json" if "tokenizer_class" in values else "config.json"
    change(checkpoint / name, **values)
    with pytest.raises(InputError, match=message):
        load_predictor(checkpoint, 32, device="cpu")


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


TAGS = "data: !!python/object/apply:os.system ['touch {trace}']"


@pytest.mark.parametrize("text", [TAGS, "data: {{train: !!python/name:trap.name }}"])
def test_tags_and_wrong_values_of_a_configuration_are_refused(write, checkpoint, trace, text):
    text = text.format(trace=trace)
    path = write("evil.yaml", text)
    with pytest.raises(InputError, match=r"evil\.yaml is not a readable YAML .*\s.*constructor for the tag"):
        load_config(["--config", str(path)])
    (checkpoint / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a readable YAML file"):
        read_trained_model(checkpoint)
    for length in ("abc", "-5", "999999999999999", "true"):
        (checkpoint / "config.yaml").write_text(f"data: {{max_length: {length}}}\n", encoding="utf-8")
        with pytest.raises(InputError, match=r"config\.yaml"):
            read_trained_model(checkpoint)
    assert not trace.exists()
    if "touch" in text:
        yaml.unsafe_load(text)
        assert trace.exists()
