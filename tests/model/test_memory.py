"""Memory of a training step: python -m pytest tests/model/test_memory.py"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from app.config.schema import Config
from app.errors import InputError
from app.model.memory import checkpoint_layers
from app.run.description import describe_memory, step_memory
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
    modules = training.strategy.module.model.named_modules()
    layer = next(module for name, module in modules if ".0." in name and isinstance(module, torch.nn.Linear))
    layer.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_a_model_that_cannot_is_refused():
    with pytest.raises(InputError, match="train.gradient_checkpointing true does not work with mpnet"):
        checkpoint_layers(tiny_model("mpnet"))


def measured_bytes(training: Training) -> int:
    """Return the most bytes that torch allocates in the second step, when the optimizer has its state."""
    training.run(until=1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        training.run(until=2)
    events = sorted(
        (event.start_ns(), event.nbytes())
        for event in seen.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    return int(np.cumsum([size for _, size in events]).max())


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_the_estimate_is_near_what_a_step_allocates(rows, packed, checkpointing):
    shape = {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 256}
    config = replace(SETTINGS, batch_size=48, gradient_checkpointing=checkpointing)
    training = Training(rows, config, shape=shape, packed=packed, dropout=0.1)
    model = training.strategy.module
    components = SimpleNamespace(
        model=model,
        loaders={"train": training.loader},
        plan=training.plan,
        layout=training.loader.layout,
        config=Config(train=config),
    )
    before = torch.get_rng_state()
    parts = step_memory(components, training.strategy, config)
    assert torch.equal(torch.get_rng_state(), before)
    trained = sum(parameter.numel() for parameter in model.parameters())
    assert parts["weights"] == parts["gradients"] == parts["optimizer"] / 2 == 4 * trained
    estimate = sum(size for name, size in parts.items() if name not in ("weights", "optimizer"))
    assert 0.6 < estimate / measured_bytes(training) < 1.7
    said = describe_memory(components, training.strategy, config)
    assert said.startswith(f"a step needs about {sum(parts.values()) / 2**20:,.0f} MiB: weights ")
    # By the largest part: moments of AdamW, or activations
    again = "model.lora.rank 16" if packed else "train.accumulation_steps 2"
    assert said.endswith(f"; less with {again if checkpointing else 'train.gradient_checkpointing true'}")
