"""Parameter groups and the learning rate: python -m pytest tests/training/test_optimizer.py"""

import re
from dataclasses import replace

import pytest
import torch

from app.config.schema import TrainConfig
from app.training.optimizer import build_optimizer, layer_depth, parameter_groups
from app.training.step import learning_rate_factor, learning_rates, set_learning_rate, warmup_steps
from tests.tiny import open_tiny, tiny_model
from tests.training.tiny_training import SETTINGS, Training


def by_name(model, groups) -> dict[str, dict]:
    """Return each parameter's group by the parameter's name, and check that it has exactly one."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [(names[id(parameter)], group) for group in groups for parameter in group["params"]]
    assert sorted(name for name, _ in found) == sorted(names.values())
    return dict(found)


@pytest.mark.parametrize("architecture", ["bert", "electra", "roberta", "albert"])
def test_every_parameter_is_in_one_group_and_norms_and_biases_do_not_decay(architecture):
    model = tiny_model(architecture)
    found = by_name(model, parameter_groups(model.named_parameters(), 0.05, num_layers=2))
    plain = {name for name, group in found.items() if group["weight_decay"] == 0}
    assert plain == {name for name, parameter in model.named_parameters() if parameter.ndim == 1}
    assert {group["weight_decay"] for group in found.values()} == {0.0, 0.05}


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("model.bert.embeddings.word_embeddings.weight", 0),
        ("model.electra.embeddings_project.weight", 0),
        ("model.bert.encoder.layer.0.attention.self.query.weight", 1),
        ("module.model.bert.encoder.layer.11.output.dense.bias", 12),
        ("model.distilbert.transformer.layer.3.ffn.lin1.weight", 4),
        ("model.model.layers.2.mlp.Wi.weight", 3),
        ("model.model.norm.weight", 12),
        ("model.model.final_norm.weight", 12),
        ("model.head.norm.weight", 13),
        ("model.bert.pooler.dense.weight", 13),
        ("model.classifier.weight", 13),
    ],
)
def test_layer_depth(name, depth):
    assert layer_depth(name, num_layers=12) == depth


def test_8_bit_adamw_trains_as_adamw_and_resumes_bit_for_bit(tmp_path):
    pytest.importorskip("bitsandbytes", reason="pip install -r requirements/8bit.txt")
    rows, shape = open_tiny(tmp_path), {"hidden_size": 64, "intermediate_size": 128}
    trainings = [
        Training(rows, replace(SETTINGS, optimizer=name), shape=shape, dropout=0.1)
        for name in ("adamw", "adamw_8bit", "adamw_8bit", "adamw_8bit")
    ]
    plain, whole, stopped, resumed = trainings
    plain.run()
    whole.run()
    resumed.resume(stopped.run(until=7))
    assert all(torch.equal(resumed.weights[name], value) for name, value in whole.weights.items())
    assert whole.losses == pytest.approx(plain.losses, rel=0.02)
    assert whole.losses != plain.losses
    state = whole.mode.optimizer_state()
    sizes = {name: value for name, value in state.items() if "query.weight" in name}
    assert {value.dtype for name, value in sizes.items() if "/state" in name} == {torch.uint8}


@pytest.mark.parametrize(
    ("warmup", "steps"), [(0.0, 0), (0.1, 20), (0.25, 50), (1, 1), (30, 30), (1000, 1000)]
)
def test_warmup_steps(warmup, steps):
    assert warmup_steps(warmup, total_steps=200) == steps


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_the_rate_rises_on_a_line_and_is_positive_on_steps_that_train(schedule):
    factors = [learning_rate_factor(step, 100, 4, schedule) for step in range(5)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert learning_rate_factor(0, 100, 0, schedule) == 1.0
    for total, warmup in ((1, 0), (1, 1), (5, 5), (5, 50), (1000, 100)):
        factors = [learning_rate_factor(step, total, warmup, schedule) for step in range(total + 5)]
        assert all(0 < factor <= 1 for factor in factors[:total])
        assert all(0 <= factor <= 1 for factor in factors[total:])
        assert schedule != "constant" or set(factors[warmup:]) <= {1.0}


@pytest.mark.parametrize(
    ("encoder", "head", "expected"),
    [
        (1e-4, 1e-3, (1e-4, 1e-3)),
        (0.0, 1e-3, (0.0, 1e-3)),
        (1e-4, 0.0, (1e-4, 0.0)),
        (1e-4, None, (1e-4, 1e-4)),
        (0.0, 0.0, (0.0, 0.0)),
    ],
)
def test_the_head_has_a_learning_rate_of_its_own(encoder, head, expected, caplog):
    """0 for the encoder and not for the head is a linear probe; 0 for both trains nothing, with a warning."""
    config = TrainConfig(learning_rate=encoder, head_learning_rate=head, weight_decay=0.1)
    model = tiny_model()
    optimizer = build_optimizer(model, config, num_layers=2)
    set_learning_rate(optimizer, learning_rates(config)[0])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    is_head = re.compile("classifier|pooler").search
    rates = {id(weight): group["lr"] for group in optimizer.param_groups for weight in group["params"]}
    wanted = {name: expected[1 if is_head(name) else 0] for name, _ in model.named_parameters()}
    assert {name: rates[id(weight)] for name, weight in model.named_parameters()} == pytest.approx(wanted)
    assert moved == {name for name, rate in wanted.items() if rate}
    assert ("nothing is trained" in caplog.text) == (not any(expected))
