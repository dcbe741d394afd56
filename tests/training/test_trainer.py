"""The loop against one written by hand in plain torch, its learning rates, and what is trained."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax

from app.config.schema import TrainConfig
from app.modes.mode import Single
from app.training.evaluation import evaluate_rows
from tests.tiny import plain_model, tiny_model
from tests.training.tiny_training import SETTINGS as TINY
from tests.training.tiny_training import SMOOTHING, WEIGHTS, SmoothedCrossEntropy, Training, tiny_data

# Every setting acts: some gradients are clipped and others are not, the warm-up ends with the third step.
COMMON = replace(TINY, epochs=2, warmup=3, max_grad_norm=6.0)
SETTINGS = {
    "sgd": replace(COMMON, optimizer="sgd", learning_rate=0.05, weight_decay=0.05),
    "adamw": replace(COMMON, schedule="cosine", weight_decay=0.1, head_learning_rate=2e-3),
}
# AdamW divides a gradient by its own size. A key's bias shifts all scores of a query alike, so its exact
# gradient is 0, and what rounding leaves of it is blown up to whole steps, in any two implementations.
WITHOUT_GRADIENT = "key.bias"


def run(config: TrainConfig, *mode_class: type, **options) -> Training:
    """Train to the end."""
    return Training(config, *mode_class, **options).run()


@dataclass(frozen=True)
class Reference:
    """What a training in plain torch gave: the last weights, and the numbers of each step."""

    weights: dict[str, torch.Tensor]
    losses: list[float]
    norms: list[float]


@cache
def reference(name: str, pairs: bool) -> Reference:
    """Train in plain torch, on whole batches, padded."""
    config = SETTINGS[name]
    dataset, tokenizer, _ = tiny_data(pairs)
    model = plain_model(tiny_model(vocab_size=len(tokenizer)).train())
    split = dataset.splits["train"]
    optimizer = plain_optimizer(model, config)
    steps_per_epoch = int(np.ceil(len(split) / config.batch_size))
    total_steps = steps_per_epoch * config.epochs
    losses = []
    norms = []
    for step in range(total_steps):
        order = np.random.default_rng([config.seed, step // steps_per_epoch]).permutation(len(split))
        first = step % steps_per_epoch * config.batch_size
        batch = order[first : first + config.batch_size]
        texts = split.table.texts(split.rows[batch])
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        labels = torch.tensor(split.labels[batch])
        target = torch.nn.functional.one_hot(labels, 3) * (1 - SMOOTHING) + SMOOTHING / 3
        output = log_softmax(model.classifier(model.bert(**inputs).pooler_output), dim=1)
        loss = -(target * WEIGHTS * output).sum() / len(batch)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)))
        factor = rate_factor(config, step, total_steps)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * factor * group["scale"]
        optimizer.step()
    return Reference(model.state_dict(), losses, norms)


def plain_optimizer(model: torch.nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return an optimizer whose groups have the factor on their learning rate as `scale`."""
    groups = []
    for name, parameter in model.named_parameters():
        rate = config.learning_rate
        if config.head_learning_rate and ("pooler" in name or "classifier" in name):
            rate = config.head_learning_rate
        decay = 0.0 if parameter.ndim == 1 else config.weight_decay
        groups.append({"params": [parameter], "weight_decay": decay, "scale": rate / config.learning_rate})
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=0.0)
    return torch.optim.AdamW(groups, lr=0.0)


def rate_factor(config: TrainConfig, step: int, total_steps: int) -> float:
    """Return the factor on the learning rate of a step, from 0, after a warm-up of three steps."""
    if step < 3:
        return (step + 1) / 3
    progress = (step - 3) / (total_steps - 3)
    if config.schedule == "linear":
        return 1 - progress
    return 0.5 * (1 + np.cos(np.pi * progress))


def difference(weights: dict, expected: dict, but: str = "nothing") -> float:
    """Return the largest absolute difference of any weight without `but` in its name."""
    assert weights.keys() == expected.keys()
    differences = []
    for name, value in expected.items():
        if but not in name:
            differences.append(float((weights[name] - value).abs().max()))
    return max(differences)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("accumulation", [1, 3, 7])
@pytest.mark.parametrize("settings", SETTINGS)
def test_weights_are_those_of_a_hand_written_loop(settings, accumulation, packed):
    # So each two values of settings, accumulation, packed and pairs meet
    pairs = packed == (accumulation == 3)
    config = replace(SETTINGS[settings], accumulation_steps=accumulation)
    training = run(config, packed=packed, pairs=pairs)
    expected = reference(settings, pairs)
    but = WITHOUT_GRADIENT if settings == "adamw" else "nothing"
    assert difference(training.weights, expected.weights, but) <= 1e-6
    assert [step.rows for step in training.steps] == [10, 10, 10, 10, 8] * 2
    losses = [float(step.passes.loss_sum) / step.rows for step in training.steps]
    assert losses == pytest.approx(expected.losses, abs=1e-4)
    assert training.norms == pytest.approx(expected.norms, rel=1e-3)


@pytest.mark.parametrize("pairs", [False, True], ids=["singles", "pairs"])
def test_the_comparison_sees_what_it_should(pairs):
    """The settings act: clipping in some steps, and each moves the weights by more than the tolerance."""
    config = SETTINGS["sgd"]
    expected = reference("sgd", pairs)
    weights = expected.weights
    assert min(expected.norms) < config.max_grad_norm < max(expected.norms)
    changes = {
        "max_grad_norm": 0.0,
        "weight_decay": 0.0,
        "warmup": 0,
        "batch_size": 12,
        "seed": 1,
        "head_learning_rate": 0.01,
    }
    for name, value in changes.items():
        changed = run(replace(config, **{name: value}), pairs=pairs)
        assert difference(changed.weights, weights) > 1e-4, name
    without_weights = Training(config, pairs=pairs)
    without_weights.loss = SmoothedCrossEntropy("cross_entropy")
    assert difference(without_weights.run().weights, weights) > 1e-4


@pytest.mark.parametrize(("max_steps", "steps", "last"), [(7, 7, 0.05 / 4), (1000, 10, 0.05 / 7)])
def test_max_steps_shortens_the_schedule_and_the_training(max_steps, steps, last):
    results = run(replace(SETTINGS["sgd"], max_steps=max_steps)).steps
    assert len(results) == steps
    assert results[-1].learning_rate == pytest.approx(last)


@pytest.mark.parametrize(("warmup", "end"), [(0.0, 1), (0.5, 2), (1, 1), (3, 3), (1000, 1000)])
def test_the_warmup_is_in_steps_and_below_1_a_fraction_of_them(warmup, end):
    config = replace(TINY, schedule="constant", warmup=warmup, max_steps=4)
    rates = [step.learning_rate for step in run(config).steps]
    assert rates == pytest.approx([config.learning_rate * min(1, step / end) for step in (1, 2, 3, 4)])


def test_dropout_is_a_function_of_seed_and_step_whatever_happens_between_steps():
    def look(state, step):
        torch.rand(3)
        first_logits = evaluate_rows(again.mode, again.loader, 4)
        second_logits = evaluate_rows(again.mode, again.loader, 4)
        np.testing.assert_array_equal(first_logits, second_logits)

    config = replace(SETTINGS["sgd"], max_steps=4)
    first = run(config, dropout=0.3).weights
    torch.manual_seed(99)
    again = Training(config, dropout=0.3)
    assert difference(again.run(after_step=look).weights, first) == 0.0
    assert difference(run(replace(config, seed=43), dropout=0.3).weights, first) > 1e-4


class TorchClipping(Single):
    """Clips as torch does it, which multiplies every gradient in every step."""

    def step(self, max_norm: float) -> tuple[torch.Tensor, bool]:
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), max_norm or float("inf"))
        return norm, super().step(0.0)[1]


@pytest.mark.parametrize("max_norm", [0.0, 1e6, 6.0, 0.01])
def test_clipping_has_the_bits_of_torchs_own(max_norm):
    config = replace(SETTINGS["adamw"], max_grad_norm=max_norm)
    training = run(config)
    expected = run(config, TorchClipping)
    training.assert_same_bits(expected)
    assert training.norms == expected.norms


def test_fp16_norms_and_clipping_are_of_unscaled_gradients_and_overflow_waits():
    config = replace(SETTINGS["sgd"], max_steps=3, max_grad_norm=0.5)
    training = Training(replace(config, precision="fp16"))
    exact = run(config)
    training.mode.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    assert training.run().norms == pytest.approx(exact.norms, rel=0.05)
    assert min(training.norms) > 0.5, "clipping must act"
    assert difference(training.weights, exact.weights) < 2e-3

    training = Training(replace(config, precision="fp16", max_steps=25, epochs=5))
    training.mode.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**32)
    start = copied(training.weights)
    moved = []
    training.run(after_step=lambda state, step: moved.append(difference(training.weights, start)))
    skipped = [step.skipped for step in training.steps]
    first = skipped.index(False)
    assert first > 3, "the scale must be far too large at first"
    assert max(moved[:first]) == 0 < moved[first]
    # Still the first of the warm-up
    rates = [step.learning_rate for step in training.steps[: first + 1]]
    assert rates == pytest.approx([config.learning_rate / 3] * (first + 1))
    assert training.state.step == 25
    assert training.state.updates == skipped.count(False)
    assert all(value.isfinite().all() for value in training.weights.values())


@pytest.mark.parametrize("architecture", ["bert", "electra", "roberta", "albert"])
def test_every_parameter_is_in_one_group_and_norms_and_biases_do_not_decay(architecture):
    model = tiny_model(architecture)
    groups = model.build_optimizer(TrainConfig(learning_rate=1e-3, weight_decay=0.05)).param_groups
    decays = {}
    for group in groups:
        for parameter in group["params"]:
            assert parameter not in decays
            decays[parameter] = group["weight_decay"]
    assert decays == {parameter: 0.05 * (parameter.ndim > 1) for parameter in model.parameters()}


def copied(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in weights.items()}


def check_trained(training: Training, trained: set[str]) -> None:
    """Check that a training changes these weights and no others."""
    start = copied(training.weights)
    weights = training.run().weights
    changed = set()
    without_gradient = set()
    for name, value in weights.items():
        if WITHOUT_GRADIENT in name:
            without_gradient.add(name)
        elif not torch.equal(value, start[name]):
            changed.add(name)
    assert changed == trained - without_gradient


# The beginnings of the names of a head's parameters
HEADS = {
    "bert": ("bert.pooler.", "classifier."),
    "albert": ("albert.pooler.", "classifier."),
    "gpt_neox": ("score.",),
}


@pytest.mark.parametrize("architecture", HEADS)
@pytest.mark.parametrize(("encoder", "head"), [(0.0, 1e-3), (1e-4, 0.0), (1e-4, None), (0.0, 0.0)])
def test_a_rate_of_0_trains_nothing(architecture, encoder, head):
    rates = {"learning_rate": encoder, "head_learning_rate": head, "weight_decay": 0.1}
    config = replace(TINY, **rates, warmup=0, max_steps=1, schedule="constant")
    training = Training(config, shape={"architecture": architecture}, packed=architecture == "bert")
    head_rate = encoder if head is None else head
    trained = set()
    for name in training.weights:
        rate = head_rate if name.startswith(HEADS[architecture]) else encoder
        if rate:
            trained.add(name)
    check_trained(training, trained)


@pytest.mark.parametrize(
    ("frozen", "frozen_parts"),
    [("embeddings", ["embeddings"]), ("encoder", ["embeddings", "layer.0.", "layer.1."])],
)
def test_frozen_weights_have_no_gradient_and_no_optimizer_state(frozen, frozen_parts):
    training = Training(frozen=frozen)
    trained = set()
    for name in training.weights:
        if not any(part in name for part in frozen_parts):
            trained.add(name)
    check_trained(training, trained)
    state = training.mode.optimizer_state()
    assert {key.removeprefix("state.").rpartition(".")[0] for key in state} == trained
