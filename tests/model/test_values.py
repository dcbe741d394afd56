"""Values that no model can have: python -m pytest tests/model/test_values.py"""

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoConfig

from app.batching.collate import collate
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.classifier import check_passes
from app.model.pretrained import build_model
from tests.tiny import LABELS, SIZES, tiny_tokenizer, token_rows


def build(values: dict, architecture: str = "bert", **settings):
    """Return a model that has classified a text, as a run and a predictor make one."""
    sizes = (
        SIZES | {"max_position_embeddings": 64}
        if architecture != "distilbert"
        else {"dim": 32, "n_heads": 4, "hidden_dim": 64}
    )
    settings = {"architecture": architecture, "config": sizes | values} | settings
    model = build_model(ModelConfig(**settings), tiny_tokenizer(), LABELS, 32)
    check_passes(model, [2, 5, 3], [2, 5, 6, 7, 3])
    return model.train()


VALUES = {
    "max_position_embeddings": (0, "at most the model's 0 positions, found 32"),
    "type_vocab_size": (0, "the model cannot classify a text"),
    "chunk_size_feed_forward": ("x", "the model cannot classify a text"),
    "dtype": ("float16", r"weights are fp32 \(train\.precision\)"),
    "num_attention_heads": (-1, "the model cannot classify a text"),
    "hidden_size": (0, "does not make a bert classifier"),
    "output_hidden_states": ("x", "the model cannot classify a text"),
    "return_dict": (False, None),
}


@pytest.mark.parametrize("key", VALUES)
def test_values_that_a_model_cannot_have(key):
    value, problem = VALUES[key]
    if problem:
        with pytest.raises(InputError, match=problem):
            build({key: value})
    else:
        assert loss(build({key: value})).isfinite()


def test_a_number_of_a_model_is_finite():
    with pytest.raises(ValueError, match="finite"):
        ModelConfig(config={"hidden_dropout_prob": float("nan")})


def loss(model) -> torch.Tensor:
    return model(**collate(token_rows([5, 9]), None, model.layout(model.can_pack))).square().sum()


ABSURD = [
    0,
    -1,
    1,
    float("nan"),
    float("inf"),
    1e30,
    -0.5,
    "x",
    "",
    [],
    {},
    True,
    False,
    None,
]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "electra"])
def test_any_value_of_any_key_trains_or_is_one_error(architecture):
    keys = sorted(AutoConfig.for_model(architecture).to_dict())
    trained = refused = 0
    for key in keys:
        for value in ABSURD:
            try:
                model = build({key: value}, architecture)
            except (InputError, ValidationError):
                # The command line and YAML files make InputError of what pydantic refuses
                refused += 1
                continue
            trained += 1
            loss(model).backward()
            assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}, f"{key}: {value}"
    assert min(trained, refused) > len(keys), (trained, refused)
