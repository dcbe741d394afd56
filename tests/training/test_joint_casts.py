"""Casting all weights by one call: python -m pytest tests/training/test_joint_casts.py"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from app.batching.collate import collate
from app.config.schema import Config
from app.errors import InputError
from app.model.joint_casts import CastLinear, JointCasts
from app.strategies.ddp import DDP
from app.strategies.single import Single
from tests.model.test_masked_language_model import random_model
from tests.tiny import open_tiny, tiny_model, token_rows
from tests.training.tiny_training import SETTINGS, TOLERANCES, Training


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20, pairs=True)


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_has_the_bits_of_autocast(rows, precision, accumulation):
    config = replace(SETTINGS, precision=precision, accumulation_steps=accumulation)
    expected = Training(rows, config, dropout=0.3).run()
    joint = Training(rows, replace(config, joint_casts=True), dropout=0.3).run()
    joint.assert_same_bits(expected)
    (found_linear, expected_linear) = (linear_layers(of.strategy.module) for of in (joint, expected))
    assert len(found_linear) == len(expected_linear) > 12
    if precision != "fp32":
        assert {type(layer) for layer in found_linear} == {CastLinear}
        assert all(layer.casts is None for layer in found_linear), (
            "copies would keep memory, and be of old weights"
        )


def linear_layers(module: torch.nn.Module) -> list[torch.nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]


class Calls(TorchDispatchMode):
    """Counts what is called, and how many casts there are between fp32 and bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def calls(model, joint_casts: JointCasts | None) -> tuple[Counter, torch.Tensor]:
    inputs = collate(token_rows([5, 9, 3]), None, model.layout(True))
    with Calls() as counted, torch.autocast("cpu", torch.bfloat16):
        if joint_casts:
            with joint_casts.in_use():
                logits = model(**inputs)
        else:
            logits = model(**inputs)
        logits.float().square().sum().backward()
    return counted.counts, logits


def test_weights_and_gradients_are_cast_by_one_call_each():
    plain, joint = tiny_model().train(), tiny_model().train()
    layers = len(linear_layers(plain))
    expected, expected_logits = calls(plain, None)
    found, logits = calls(joint, JointCasts(joint, torch.bfloat16))
    assert torch.equal(logits, expected_logits)
    assert found["_foreach_copy_"] == 2
    # A weight and a bias of each layer, there and back.
    assert expected["_to_copy"] - found["_to_copy"] == 4 * layers
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter.grad, joint.get_parameter(name).grad), name
        assert joint.get_parameter(name).grad.dtype == torch.float32


def test_frozen_and_unused_layers_get_no_gradient():
    plain, joint = tiny_model().train(), tiny_model().train()
    for model in (plain, joint):
        for parameter in model.model.base_model.encoder.layer[0].parameters():
            parameter.requires_grad_(False)
        model.unused = torch.nn.Linear(3, 3)
    casts = JointCasts(joint, torch.bfloat16)
    calls(plain, None)
    calls(joint, casts)
    without = {name for name, parameter in joint.named_parameters() if parameter.grad is None}
    assert without == {name for name, parameter in plain.named_parameters() if parameter.grad is None}
    assert {"unused.weight", "unused.bias"} < without
    for name, parameter in joint.named_parameters():
        assert name in without or torch.equal(parameter.grad, plain.get_parameter(name).grad), name


def test_masked_language_modelling_have_the_gradients_of_autocast():
    plain, joint = (random_model().train() for _ in range(2))
    joint.load_state_dict(plain.state_dict())
    casts = JointCasts(joint, torch.bfloat16)
    inputs = collate(token_rows([5, 9, 3]), None, plain.layout(True)) | {"masked": torch.tensor([1, 4, 7])}
    for model in (plain, joint):
        with torch.autocast("cpu", torch.bfloat16):
            if model is joint:
                with casts.in_use():
                    logits = model(**inputs)
            else:
                logits = model(**inputs)
        logits.float().square().sum().backward()
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter.grad, joint.get_parameter(name).grad), name


def test_other_modes_refuse_them():
    config = Config(train=replace(SETTINGS, precision="bf16", joint_casts=True))
    with (
        pytest.raises(InputError, match="train.joint_casts true needs run_single.py"),
        DDP(config) as strategy,
    ):
        strategy.setup(tiny_model(), lambda module: torch.optim.SGD(module.parameters()))
    assert not torch.distributed.is_initialized(), "another job of this process could not start"


def test_the_default_is_off_on_the_cpu():
    with Single(Config(train=replace(SETTINGS, precision="bf16"))) as strategy:
        strategy.setup(tiny_model(), lambda module: torch.optim.SGD(module.parameters()))
        assert strategy.joint_casts is None


@pytest.mark.gpu
def test_joint_casts_are_the_same_job_on_a_gpu(rows, caplog):
    config = replace(SETTINGS, device="cuda", precision="bf16")
    joint = Training(rows, config).run()
    assert joint.strategy.joint_casts
    assert not caplog.records
    joint.assert_same_job(Training(rows, replace(config, joint_casts=False)).run(), 10 * TOLERANCES["bf16"])
