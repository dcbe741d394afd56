"""Parameter groups, frozen layers and the learning rate: python -m pytest tests/training/test_optimizer.py"""

import re
from dataclasses import replace

import pytest
import torch

from app.config.schema import TrainConfig
from app.errors import InputError
from app.model.trained_weights import freeze, is_of_head
from app.training.step import build_optimizer, learning_rate_factor
from tests.tiny import open_tiny, tiny_model
from tests.training.tiny_training import SETTINGS, Training


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A prepared data file: (dataset, tokenizer, stores)."""
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20)


@pytest.mark.parametrize("architecture", ["bert", "electra", "roberta", "albert"])
def test_every_parameter_is_in_one_group_and_norms_and_biases_do_not_decay(architecture):
    model = tiny_model(architecture)
    config = TrainConfig(learning_rate=1e-3, weight_decay=0.05)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = build_optimizer(model, config).param_groups
    found = [(names[id(weight)], group["weight_decay"]) for group in groups for weight in group["params"]]
    wanted = [(name, 0.05 * (weight.ndim > 1)) for name, weight in model.named_parameters()]
    assert sorted(found) == sorted(wanted)


def test_what_is_of_the_head():
    encoder = ("bert.embeddings.word_embeddings.weight", "bert.encoder.layer.11.output.dense.bias")
    encoder += ("distilbert.transformer.layer.3.ffn.lin1.weight", "model.layers.2.mlp.Wi.weight")
    assert not any(is_of_head(f"module.model.{name}") for name in (*encoder, "model.norm.weight"))
    assert all(is_of_head(f"model.{name}") for name in ("head.norm.weight", "classifier.weight"))


@pytest.mark.parametrize(("frozen", "depth"), [("embeddings", 0), ("encoder", 2)])
def test_frozen_weights_have_no_gradient_and_no_optimizer_state(rows, frozen, depth):
    training = Training(rows, frozen=frozen)
    start = {name: value.clone() for name, value in training.weights.items()}
    weights = training.run().weights
    below = ["embeddings", *(f"layer.{number}." for number in range(depth))]
    frozen_names = {name for name in weights if any(part in name for part in below)}
    changed = {name for name in weights if not torch.equal(weights[name], start[name])}
    # A key's bias has no gradient
    assert changed | {name for name in weights if "key.bias" in name} >= weights.keys() - frozen_names
    assert not changed & frozen_names
    state = training.mode.optimizer_state()
    assert {key.removeprefix("state.").rpartition(".")[0] for key in state} == weights.keys() - frozen_names


def test_a_model_whose_layers_have_other_names_cannot_be_frozen():
    with pytest.raises(InputError, match=r"model.freeze needs parameters .* embeddings and layer.N"):
        freeze(tiny_model("albert"), "encoder")


@pytest.mark.parametrize(
    ("warmup", "factors"),
    [
        (0.0, [1, 1, 1, 1]),
        (0.5, [1 / 2, 1, 1, 1]),
        (1, [1, 1, 1, 1]),
        (3, [1 / 3, 2 / 3, 1, 1]),
        (1000, [0.001, 0.002, 0.003, 0.004]),
    ],
)
def test_the_warmup_is_in_steps_and_below_1_a_fraction_of_them(rows, warmup, factors):
    config = replace(SETTINGS, schedule="constant", warmup=warmup, max_steps=4)
    rates = [step.learning_rate for step in Training(rows, config).run().steps]
    assert rates == pytest.approx([config.learning_rate * factor for factor in factors])


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
    ("encoder", "head"), [(1e-4, 1e-3), (0.0, 1e-3), (1e-4, 0.0), (1e-4, None), (0.0, 0.0)]
)
def test_the_head_has_a_learning_rate_of_its_own(rows, encoder, head):
    """0 for the encoder and not for the head is a linear probe; 0 for both trains nothing."""
    rates = {"learning_rate": encoder, "head_learning_rate": head, "weight_decay": 0.1}
    training = Training(rows, replace(SETTINGS, **rates, warmup=0, max_steps=1, schedule="constant"))
    before = {name: value.clone() for name, value in training.weights.items()}
    after, groups = training.run().weights, training.mode.optimizer.param_groups
    found = {id(weight): group["lr"] for group in groups for weight in group["params"]}
    for name, weight in training.mode.module.model.named_parameters():
        is_head = re.search("classifier|pooler", name) and head is not None
        wanted = head if is_head else encoder
        assert found[id(weight)] == pytest.approx(wanted)
        # A key's bias has no gradient
        if "key.bias" not in name:
            assert torch.equal(after[name], before[name]) == (not wanted), name
