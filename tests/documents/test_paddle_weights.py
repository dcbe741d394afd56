"""examples/paddle_weights.py, on files that are written here as PaddleNLP writes them."""

import json
import os
import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, ErnieConfig, ErnieModel

from app.config.schema import ModelConfig
from app.model.build_model import build_model
from app.model.checkpoint_folder import check_checkpoint_folder
from app.model.tokenizer import load_tokenizer
from tests.processes import ROOT
from tests.saved_classifier import VOCABULARY

SCRIPT = runpy.run_path(str(ROOT / "examples" / "paddle_weights.py"))
# Names in transformers, and in PaddleNLP
PADDLE_NAMES = (
    (".attention.self.query.", ".self_attn.q_proj."),
    (".attention.self.key.", ".self_attn.k_proj."),
    (".attention.self.value.", ".self_attn.v_proj."),
    (".attention.output.dense.", ".self_attn.out_proj."),
    (".attention.output.LayerNorm.", ".norm1."),
    (".intermediate.dense.", ".linear1."),
    (".output.dense.", ".linear2."),
    (".output.LayerNorm.", ".norm2."),
    ("encoder.layer.", "encoder.layers."),
    ("embeddings.LayerNorm.", "embeddings.layer_norm."),
)


def paddle_tensors(model: ErnieModel) -> dict[str, np.ndarray]:
    tensors = {}
    for name, value in model.state_dict().items():
        for ours, theirs in PADDLE_NAMES:
            name = name.replace(ours, theirs)
        array = value.numpy()
        if array.ndim == 2 and "embeddings" not in name:
            array = array.T.copy()
        tensors[f"ernie.{name}"] = array
    return tensors


@pytest.fixture
def model() -> ErnieModel:
    torch.manual_seed(0)
    config = ErnieConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=48,
        type_vocab_size=4,
        task_type_vocab_size=16,
        use_task_id=True,
        initializer_range=0.3,
    )
    return ErnieModel(config).eval()


@pytest.fixture
def paddle_folder(model, tmp_path) -> Path:
    folder = tmp_path / "ernie-3.0-tiny"
    folder.mkdir()
    tensors = paddle_tensors(model)
    # Files of Paddle also have heads of the pretraining, and a table of names
    tensors["cls.predictions.layer_norm.bias"] = np.zeros(24, np.float32)
    names = {"StructuredToParameterName@@": {name: f"parameter_{name}" for name in tensors}}
    (folder / "model_state.pdparams").write_bytes(pickle.dumps(tensors | names, protocol=2))
    arguments = {"num_attention_heads": 4, "hidden_act": "gelu", "hidden_size": 24, "use_task_id": True}
    configuration = {"init_args": [arguments], "init_class": "ErnieModel"}
    (folder / "model_config.json").write_text(json.dumps(configuration), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return folder


def test_the_converted_model_computes_what_the_original_does(model, paddle_folder, tmp_path):
    target = tmp_path / "converted"
    SCRIPT["convert"](paddle_folder, target)
    check_checkpoint_folder(target)
    tokens = AutoTokenizer.from_pretrained(target)(
        ["今天真开心", "气死我了"], padding=True, return_tensors="pt"
    )
    converted = ErnieModel.from_pretrained(target).eval()
    with torch.no_grad():
        wanted = model(**tokens)
        states = converted(**tokens)
    torch.testing.assert_close(states.last_hidden_state, wanted.last_hidden_state)
    torch.testing.assert_close(states.pooler_output, wanted.pooler_output)
    assert len(wanted.last_hidden_state.unique()) > 100


def test_the_program_takes_the_folder(paddle_folder, tmp_path, caplog):
    target = tmp_path / "converted"
    SCRIPT["convert"](paddle_folder, target)
    settings = ModelConfig(name=str(target))
    build_model(settings, load_tokenizer(settings, None, 32, ""), ["坏", "好"], 32)
    assert not caplog.text


def test_tensors_with_their_names_and_half_precision_are_read(tmp_path):
    path = tmp_path / "a.pdparams"
    values = {"x": ("x_0", np.ones(3, np.float16)), "y": np.ones((2, 2))}
    path.write_bytes(pickle.dumps(values, protocol=4))
    tensors = SCRIPT["read_tensors"](path)
    assert {name: value.dtype for name, value in tensors.items()} == {"x": np.float32, "y": np.float32}


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_file_that_runs_code_is_refused_before_it_does(tmp_path, protocol):
    path = tmp_path / "a.pdparams"
    path.write_bytes(pickle.dumps({"x": Harmful(tmp_path / "made")}, protocol=protocol))
    with pytest.raises(ValueError, match=r"a file of tensors is needed: only arrays are read, found .*mkdir"):
        SCRIPT["read_tensors"](path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], "found a list"),
        ({"x": "text"}, "x must be an array of floats, found a str"),
        ({"x": np.ones(2, np.int64)}, "found one of int64"),
        ({"x": np.array([[1], [2, 3]], dtype=object)}, "found one of object"),
    ],
)
def test_other_content_is_named(tmp_path, values, message):
    path = tmp_path / "a.pdparams"
    path.write_bytes(pickle.dumps(values))
    with pytest.raises(ValueError, match=message):
        SCRIPT["read_tensors"](path)
    path.write_bytes(b"no pickle")
    with pytest.raises(ValueError, match="a file of tensors is needed"):
        SCRIPT["read_tensors"](path)


def test_a_folder_that_is_there_stays_as_it_is(paddle_folder, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError):
        SCRIPT["convert"](paddle_folder, tmp_path / "there")
    (paddle_folder / "model_config.json").unlink()
    with pytest.raises(ValueError, match=r"config\.json or model_config\.json is needed"):
        SCRIPT["convert"](paddle_folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()
