"""R-Drop and frozen layers against a loop written by hand in plain torch and transformers:
python -m pytest tests/training/test_methods.py"""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax
from transformers import AutoModelForSequenceClassification

from app.batching.plan import BatchPlan
from app.config.schema import Config, TrainConfig
from app.errors import InputError
from app.model.freezing import freeze
from app.outcomes.cumulative_logits import CumulativeLoss, class_logits
from app.outcomes.losses import BinaryCrossEntropy, CrossEntropy, NumberLoss
from app.strategies.single import Single
from app.training.loop import RunProgress, train
from app.training.optimizer import build_optimizer
from tests.strategies.contract_worker import two_masks
from tests.tiny import loaders_of, open_tiny, tiny_model

BASE = TrainConfig(
    optimizer="sgd",
    learning_rate=0.05,
    epochs=2,
    batch_size=10,
    warmup=0,
    schedule="constant",
    max_grad_norm=0.0,
    weight_decay=0.0,
    precision="fp32",
    device="cpu",
    threads=1,
)
METHODS = {"plain": {}, "r_drop": {"r_drop": 2.0}}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A prepared data file: (dataset, tokenizer, stores)."""
    return open_tiny(tmp_path_factory.mktemp("methods"), rows_per_label=20)


def new_model(rows, masks: bool):
    model = tiny_model(vocab_size=len(rows[1])).train()
    if masks:
        model.model.classifier.register_forward_pre_hook(two_masks)
    return model


def run(rows, config: TrainConfig, packed: bool = True, frozen: str | int | None = None):
    """Train as a job does; returns the weights, the losses of the steps, and the strategy."""
    dataset, _, stores = rows
    steps = []
    with Single(Config(train=config)) as strategy:
        model = new_model(rows, bool(config.r_drop))
        freeze(model, frozen, 2)
        loader = loaders_of(dataset, stores, model, packed)["train"]
        strategy.setup(model, lambda module: build_optimizer(module, config, num_layers=2))
        plan, state = BatchPlan(len(loader), config.batch_size, config.seed), RunProgress()
        loss = CrossEntropy(None)
        train(strategy, loader, plan, loss, config, state, lambda state, step: steps.append(step))
        return strategy.full_state.weights(), [float(step.loss_sum) / step.rows for step in steps], strategy


def reference(rows, config: TrainConfig) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The same training by hand: row by row, through transformers' own model."""
    dataset, _, stores = rows
    ours = new_model(rows, False).model
    model = AutoModelForSequenceClassification.from_config(deepcopy(ours.config), attn_implementation="eager")
    model.load_state_dict(ours.state_dict())
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    split, store = dataset.splits["train"], stores["train"]
    kept = torch.arange(model.config.hidden_size) % 2 * 2.0
    losses = []
    for epoch in range(config.epochs):
        order = np.random.default_rng([config.seed, epoch]).permutation(len(split))
        for first in range(0, len(order), config.batch_size):
            batch = order[first : first + config.batch_size]
            total = 0.0
            for at in batch:
                ids = torch.tensor(store.row(split.rows[at]).astype(np.int64))[None]
                label = torch.tensor(split.labels[at : at + 1])
                if config.r_drop:
                    pooled = model.bert(ids).pooler_output
                    one, other = (model.classifier(pooled * mask) for mask in (kept, 2 - kept))
                    both = [log_softmax(logits, dim=1) for logits in (one, other)]
                    kl = sum(kl_div(a, b, reduction="sum", log_target=True) for a, b in (both, both[::-1]))
                    loss = (cross_entropy(one, label) + cross_entropy(other, label)) / 2
                    loss = loss + config.r_drop * kl / 2
                else:
                    loss = cross_entropy(model(ids).logits, label)
                total = total + loss / len(batch)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            losses.append(float(total.detach()))
    return {f"model.{name}": value for name, value in model.state_dict().items()}, losses


def difference(found: dict, expected: dict) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[name] - expected[name]).abs().max()) for name in found)


@pytest.fixture(scope="module")
def expected(rows):
    return {name: reference(rows, replace(BASE, **settings)) for name, settings in METHODS.items()}


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_weights_are_those_of_a_hand_written_loop(rows, expected, method, accumulation, packed):
    config = replace(BASE, accumulation_steps=accumulation, **METHODS[method])
    weights, losses, _ = run(rows, config, packed)
    wanted, wanted_losses = expected[method]
    assert difference(weights, wanted) <= 2e-6
    assert losses == pytest.approx(wanted_losses, abs=1e-4)


def test_the_comparison_sees_what_it_should(expected):
    """R-Drop moves the weights by more than the tolerance."""
    assert difference(expected["r_drop"][0], expected["plain"][0]) > 1e-3


def test_each_copy_of_a_row_has_its_own_dropout(rows):
    """With real dropout the copies differ, so the divergence adds to the loss of the first step."""
    first = {}
    for weight in (1e-9, 10.0):
        config = replace(BASE, r_drop=weight, max_steps=1)
        dataset, _, stores = rows
        with Single(Config(train=config)) as strategy:
            model = tiny_model(vocab_size=len(rows[1]), dropout=0.3).train()
            loader = loaders_of(dataset, stores, model, True)["train"]
            strategy.setup(model, lambda module: build_optimizer(module, BASE, num_layers=2))
            plan, seen = BatchPlan(len(loader), 10, 1), []
            loss = CrossEntropy(None)
            keep = seen.append
            train(strategy, loader, plan, loss, config, RunProgress(), lambda _, step, keep=keep: keep(step))
        first[weight] = float(seen[0].loss_sum)
    assert first[10.0] > first[1e-9] + 0.1


@pytest.mark.parametrize(("frozen", "depth"), [("embeddings", 0), (1, 1), (2, 2)])
def test_frozen_weights_have_no_gradient_and_no_optimizer_state(rows, frozen, depth):
    config = replace(BASE, optimizer="adamw", learning_rate=1e-3)
    start = {name: value.clone() for name, value in new_model(rows, False).state_dict().items()}
    weights, _, strategy = run(rows, config, frozen=frozen)
    frozen_names = {
        name
        for name in weights
        if "embeddings" in name or any(f"layer.{below}." in name for below in range(depth))
    }
    changed = {name for name in weights if not torch.equal(weights[name], start[name])}
    # A key's bias has no gradient
    assert changed | {name for name in weights if "key.bias" in name} >= weights.keys() - frozen_names
    assert not changed & frozen_names
    assert {
        key.rpartition("/")[0] for key in strategy.full_state.optimizer()
    } == weights.keys() - frozen_names


def test_no_backward_pass_below_the_first_trained_layer(rows):
    model = new_model(rows, False)
    freeze(model, 1, 2)
    seen = {}
    layers = model.model.bert.encoder.layer
    for number, layer in enumerate(layers):
        layer.register_forward_hook(
            lambda module, inputs, output, number=number: seen.update(
                {number: (output[0] if isinstance(output, tuple) else output).requires_grad}
            )
        )
    model(torch.tensor([[2, 5, 6, 3]]), attention_mask=torch.ones(1, 4, dtype=torch.long))
    assert seen == {0: False, 1: True}


def test_more_frozen_layers_than_the_model_has_are_refused(rows):
    with pytest.raises(InputError, match=r"model.freeze must be at most the model's 2 layers, found 3"):
        freeze(new_model(rows, False), 3, 2)


def test_divergence_of_several_labels_is_that_of_each():
    one, other = torch.randn(2, 3, 4, dtype=torch.float64)
    divergence = BinaryCrossEntropy(None).divergence
    p, q = one.sigmoid(), other.sigmoid()
    kl = sum((a * (a / b).log() + (1 - a) * ((1 - a) / (1 - b)).log()).sum() for a, b in ((p, q), (q, p)))
    assert float(divergence(one, other)) == pytest.approx(float(kl / 2))
    assert float(divergence(one, one)) == 0.0


def test_divergence_of_ordered_labels_is_that_of_their_probabilities_and_of_numbers_the_squared_difference():
    one, other = torch.randn(2, 3, 4, dtype=torch.float64)
    p, q = (torch.from_numpy(class_logits(outputs.numpy())).exp() for outputs in (one, other))
    kl = sum((a * (a / b).log()).sum() for a, b in ((p, q), (q, p)))
    divergence = CumulativeLoss(CrossEntropy(None)).divergence
    assert float(divergence(one, other)) == pytest.approx(float(kl / 2))
    apart = NumberLoss("huber").divergence(one[:, :1], other[:, :1])
    assert float(apart) == pytest.approx(float(((one - other)[:, 0] ** 2).sum()))
