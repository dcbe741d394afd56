"""Layers that are computed again: python -m pytest tests/model/test_gradient_checkpointing.py"""

from dataclasses import replace

import pytest
import torch

from app.errors import InputError
from tests.tiny import open_tiny, tiny_model
from tests.training.tiny_training import SETTINGS, Training


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ({}, {}),
        ({}, {"packed": False}),
        ({"architecture": "electra"}, {}),
        ({"architecture": "qwen3", "head_dim": 8, "num_key_value_heads": 2}, {"packed": False}),
    ],
    ids=["packed", "padded", "electra", "qwen3"],
)
def test_layers_that_are_computed_again_give_the_same_bits(rows, shape, changes):
    """With dropout, and micro-batches; each layer is computed twice in a step."""
    settings = replace(SETTINGS, max_steps=4, accumulation_steps=2)
    runs = [
        Training(rows, replace(settings, gradient_checkpointing=is_on), shape=shape, dropout=0.3, **changes)
        for is_on in (False, True)
    ]
    calls = [calls_of_a_layer(training) for training in runs]
    runs[1].run().assert_same_bits(runs[0].run())
    assert len(calls[1]) == 2 * len(calls[0]) > 0


def calls_of_a_layer(training: Training) -> list:
    """Return a list to which each pass of the first layer adds."""
    calls = []
    modules = training.mode.module.model.named_modules()
    layer = next(module for name, module in modules if ".0." in name and isinstance(module, torch.nn.Linear))
    layer.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_a_model_that_cannot_is_refused():
    with pytest.raises(InputError, match="train.gradient_checkpointing true does not work with mpnet"):
        tiny_model("mpnet").checkpoint_layers()
