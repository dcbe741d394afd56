"""R-Drop and frozen layers: python -m pytest tests/training/test_methods.py"""

from dataclasses import replace

import pytest
import torch

from app.errors import InputError
from app.model.trained_weights import freeze
from app.tasks import open_task
from app.tasks.losses import ClassLoss, ListLoss, NumberLoss
from tests.tiny import open_tiny, tiny_model
from tests.training.tiny_training import SETTINGS, Training


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A prepared data file: (dataset, tokenizer, stores)."""
    return open_tiny(tmp_path_factory.mktemp("methods"), rows_per_label=20)


def test_each_copy_of_a_row_has_its_own_dropout(rows):
    """With real dropout the copies differ, so the divergence adds to the loss of the first step."""
    weak, strong = (
        Training(rows, replace(SETTINGS, r_drop=weight, max_steps=1), dropout=0.3).run().losses[0]
        for weight in (1e-9, 10.0)
    )
    assert strong > weak + 0.1


@pytest.mark.parametrize(("frozen", "depth"), [("embeddings", 0), (1, 1), (2, 2)])
def test_frozen_weights_have_no_gradient_and_no_optimizer_state(rows, frozen, depth):
    training = Training(rows, frozen=frozen)
    start = {name: value.clone() for name, value in training.weights.items()}
    weights = training.run().weights
    frozen_names = {
        name
        for name in weights
        if "embeddings" in name or any(f"layer.{below}." in name for below in range(depth))
    }
    changed = {name for name in weights if not torch.equal(weights[name], start[name])}
    # A key's bias has no gradient
    assert changed | {name for name in weights if "key.bias" in name} >= weights.keys() - frozen_names
    assert not changed & frozen_names
    state = training.mode.optimizer_state()
    assert {key.rpartition("/")[0] for key in state} == weights.keys() - frozen_names


def test_more_frozen_layers_than_the_model_has_are_refused():
    with pytest.raises(InputError, match=r"model.freeze must be at most the model's 2 layers, found 3"):
        freeze(tiny_model(), 3, 2)


def test_divergence_of_several_labels_is_that_of_each():
    one, other = torch.randn(2, 3, 4, dtype=torch.float64)
    divergence = ListLoss("cross_entropy").divergence
    p, q = one.sigmoid(), other.sigmoid()
    kl = sum((a * (a / b).log() + (1 - a) * ((1 - a) / (1 - b)).log()).sum() for a, b in ((p, q), (q, p)))
    assert float(divergence(one, other)) == pytest.approx(float(kl / 2))
    assert float(divergence(one, one)) == 0.0


def test_divergence_of_ordered_labels_is_that_of_their_probabilities_and_of_numbers_the_squared_difference():
    one, other = torch.randn(2, 3, 4, dtype=torch.float64)
    task = open_task("ordinal", list("abcd"))
    p, q = (torch.from_numpy(task.class_logits(outputs.numpy())).exp() for outputs in (one, other))
    kl = sum((a * (a / b).log()).sum() for a, b in ((p, q), (q, p)))
    divergence = ClassLoss(
        "cross_entropy", logits_of=lambda outputs: task.class_logits(outputs, torch)
    ).divergence
    assert float(divergence(one, other)) == pytest.approx(float(kl / 2))
    apart = NumberLoss("huber").divergence(one[:, :1], other[:, :1])
    assert float(apart) == pytest.approx(float(((one - other)[:, 0] ** 2).sum()))
