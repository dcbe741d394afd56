"""The loop against one written by hand in plain torch, its learning rates, and what is trained."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import kl_div, log_softmax

from app.config.schema import TrainConfig
from app.modes.mode import Single
from app.tasks import open_task
from app.tasks.losses import ClassLoss, ListLoss, NumberLoss
from app.training.evaluation import evaluate_rows
from tests.modes.contract import two_masks
from tests.tiny import plain_model, tiny_model
from tests.training.tiny_training import SETTINGS as TINY
from tests.training.tiny_training import SMOOTHING, WEIGHTS, SmoothedCrossEntropy, Training, tiny_data

# Every setting acts: some gradients are clipped and others are not, the warm-up ends with the third step.
COMMON = replace(TINY, epochs=2, warmup=3, max_grad_norm=6.0)
SETTINGS = {
    "sgd": replace(COMMON, optimizer="sgd", learning_rate=0.05, weight_decay=0.05),
    "adamw": replace(COMMON, schedule="cosine", weight_decay=0.1, head_learning_rate=2e-3),
}
SETTINGS["r_drop"] = replace(SETTINGS["sgd"], r_drop=2.0)
# AdamW divides a gradient by its own size. A key's bias shifts all scores of a query alike, so its exact
# gradient is 0, and what rounding leaves of it is blown up to whole steps, in any two implementations.
WITHOUT_GRADIENT = "key.bias"


def run(config: TrainConfig, *mode_class: type, **options) -> Training:
    """Train to the end; with R-Drop under masks in place of dropout."""
    training = Training(config, *mode_class, **options)
    if config.r_drop:
        training.mode.module.model.classifier.register_forward_pre_hook(two_masks)
    return training.run()


@cache
def reference(name: str, pairs: bool) -> tuple[dict[str, torch.Tensor], list[float], list[float]]:
    """Train in plain torch, on whole batches, padded; return weights, losses and gradient norms."""
    config = SETTINGS[name]
    (dataset, tokenizer, _) = tiny_data(pairs)
    model = plain_model(tiny_model(vocab_size=len(tokenizer)).train())
    split = dataset.splits["train"]
    groups = []
    for key, parameter in model.named_parameters():
        decay = 0.0 if parameter.ndim == 1 else config.weight_decay
        is_head = "pooler" in key or "classifier" in key
        rate = (is_head and config.head_learning_rate) or config.learning_rate
        groups.append({"params": [parameter], "weight_decay": decay, "scale": rate / config.learning_rate})
    kind = torch.optim.SGD if config.optimizer == "sgd" else torch.optim.AdamW
    optimizer = kind(groups, lr=0.0)
    kept = torch.arange(model.config.hidden_size) % 2 * 2.0
    masks = (kept, 2 - kept) if config.r_drop else (1.0, 1.0)
    steps_per_epoch = int(np.ceil(len(split) / config.batch_size))
    total = steps_per_epoch * config.epochs
    losses = []
    norms = []
    for step in range(total):
        order = np.random.default_rng([config.seed, step // steps_per_epoch]).permutation(len(split))
        first = step % steps_per_epoch * config.batch_size
        batch = order[first : first + config.batch_size]
        texts = split.table.texts(split.rows[batch])
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        labels = torch.tensor(split.labels[batch])
        target = torch.nn.functional.one_hot(labels, 3) * (1 - SMOOTHING) + SMOOTHING / 3
        pooled = model.bert(**inputs).pooler_output
        outputs = [log_softmax(model.classifier(pooled * mask), dim=1) for mask in masks]
        loss = sum(-(target * WEIGHTS * found).sum() for found in outputs) / 2
        both = (outputs, outputs[::-1])
        divergence = sum(kl_div(*pair, reduction="sum", log_target=True) for pair in both)
        loss = (loss + (config.r_drop or 0) * divergence / 2) / len(batch)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)))
        if step < 3:
            factor = (step + 1) / 3
        else:
            share = (step - 3) / (total - 3)
            factor = 1 - share if config.schedule == "linear" else 0.5 * (1 + np.cos(np.pi * share))
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * factor * group["scale"]
        optimizer.step()
    return model.state_dict(), losses, norms


def difference(found: dict, expected: dict, but: str = "nothing") -> float:
    """Return the largest absolute difference of any weight without `but` in its name."""
    assert found.keys() == expected.keys()
    return max(
        float((found[name] - value).abs().max()) for name, value in expected.items() if but not in name
    )


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("accumulation", [1, 3, 7])
@pytest.mark.parametrize("settings", SETTINGS)
def test_weights_are_those_of_a_hand_written_loop(settings, accumulation, packed):
    # So each two values of settings, accumulation, packed and pairs meet
    pairs = packed == (accumulation == 3)
    config = replace(SETTINGS[settings], accumulation_steps=accumulation)
    found = run(config, packed=packed, pairs=pairs)
    weights, losses, norms = reference(settings, pairs)
    but = WITHOUT_GRADIENT if settings == "adamw" else "nothing"
    assert difference(found.weights, weights, but) <= 1e-6
    assert [step.rows for step in found.steps] == [10, 10, 10, 10, 8] * 2
    assert [float(step.loss_sum) / step.rows for step in found.steps] == pytest.approx(losses, abs=1e-4)
    assert found.norms == pytest.approx(norms, rel=1e-3)


@pytest.mark.parametrize("pairs", [False, True], ids=["singles", "pairs"])
def test_the_comparison_sees_what_it_should(pairs):
    """The settings act: clipping in some steps, and each moves the weights by more than the tolerance."""
    config = SETTINGS["sgd"]
    (weights, _, norms) = reference("sgd", pairs)
    assert min(norms) < config.max_grad_norm < max(norms)
    others = {"max_grad_norm": 0.0, "weight_decay": 0.0, "warmup": 0, "batch_size": 12, "seed": 1}
    for name, value in (others | {"head_learning_rate": 0.01}).items():
        assert difference(run(replace(config, **{name: value}), pairs=pairs).weights, weights) > 1e-4, name
    without_weights = Training(config, pairs=pairs)
    without_weights.loss = SmoothedCrossEntropy("cross_entropy")
    assert difference(without_weights.run().weights, weights) > 1e-4
    assert difference(reference("r_drop", pairs)[0], weights) > 1e-3


@pytest.mark.parametrize(("max_steps", "steps", "last"), [(7, 7, 0.05 / 4), (1000, 10, 0.05 / 7)])
def test_max_steps_shortens_the_schedule_and_the_training(max_steps, steps, last):
    found = run(replace(SETTINGS["sgd"], max_steps=max_steps)).steps
    assert len(found) == steps
    assert found[-1].learning_rate == pytest.approx(last)


@pytest.mark.parametrize(("warmup", "end"), [(0.0, 1), (0.5, 2), (1, 1), (3, 3), (1000, 1000)])
def test_the_warmup_is_in_steps_and_below_1_a_fraction_of_them(warmup, end):
    config = replace(TINY, schedule="constant", warmup=warmup, max_steps=4)
    rates = [step.learning_rate for step in run(config).steps]
    assert rates == pytest.approx([config.learning_rate * min(1, step / end) for step in (1, 2, 3, 4)])


def test_dropout_is_a_function_of_seed_and_step_whatever_happens_between_steps():
    def look(state, step):
        torch.rand(3)
        one, other = (evaluate_rows(again.mode, again.loader, 4) for _ in range(2))
        np.testing.assert_array_equal(one, other)

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
    found = run(config)
    expected = run(config, TorchClipping)
    found.assert_same_bits(expected)
    assert found.norms == expected.norms


def test_fp16_norms_and_clipping_are_of_unscaled_gradients_and_overflow_waits():
    config = replace(SETTINGS["sgd"], max_steps=3, max_grad_norm=0.5)
    found = Training(replace(config, precision="fp16"))
    exact = run(config)
    found.mode.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    assert found.run().norms == pytest.approx(exact.norms, rel=0.05)
    assert min(found.norms) > 0.5, "clipping must act"
    assert difference(found.weights, exact.weights) < 2e-3

    found = Training(replace(config, precision="fp16", max_steps=25, epochs=5))
    found.mode.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**32)
    start = {name: value.clone() for name, value in found.weights.items()}
    moved = []
    found.run(after_step=lambda state, step: moved.append(difference(found.weights, start)))
    skipped = [step.skipped for step in found.steps]
    first = skipped.index(False)
    assert first > 3, "the scale must be far too large at first"
    assert max(moved[:first]) == 0 < moved[first]
    # Still the first of the warm-up
    rates = [step.learning_rate for step in found.steps[: first + 1]]
    assert rates == pytest.approx([config.learning_rate / 3] * (first + 1))
    assert (found.state.step, found.state.updates) == (25, skipped.count(False))
    assert all(value.isfinite().all() for value in found.weights.values())


@pytest.mark.parametrize("architecture", ["bert", "electra", "roberta", "albert"])
def test_every_parameter_is_in_one_group_and_norms_and_biases_do_not_decay(architecture):
    model = tiny_model(architecture)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = model.build_optimizer(TrainConfig(learning_rate=1e-3, weight_decay=0.05)).param_groups
    found = [(names[id(weight)], group["weight_decay"]) for group in groups for weight in group["params"]]
    assert sorted(found) == sorted((name, 0.05 * (one.ndim > 1)) for name, one in model.named_parameters())


def check_trained(training: Training, trained: set[str]) -> None:
    """Check that a training changes these weights and no others."""
    start = {name: value.clone() for name, value in training.weights.items()}
    weights = training.run().weights
    changed = {name for name in start if not torch.equal(weights[name], start[name])}
    without_gradient = {name for name in start if WITHOUT_GRADIENT in name}
    assert changed | without_gradient == trained | without_gradient


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


@pytest.mark.parametrize(("frozen", "depth"), [("embeddings", 0), ("encoder", 2)])
def test_frozen_weights_have_no_gradient_and_no_optimizer_state(frozen, depth):
    training = Training(frozen=frozen)
    below = ["embeddings", *(f"layer.{number}." for number in range(depth))]
    trained = {name for name in training.weights if not any(part in name for part in below)}
    check_trained(training, trained)
    state = training.mode.optimizer_state()
    assert {key.removeprefix("state.").rpartition(".")[0] for key in state} == trained


def test_each_copy_of_a_row_has_its_own_dropout():
    """With real dropout the copies differ, so the divergence adds to the loss of the first step."""
    configs = [replace(TINY, r_drop=weight, max_steps=1) for weight in (1e-9, 10.0)]
    weak, strong = (Training(config, dropout=0.3).run().losses[0] for config in configs)
    assert strong > weak + 0.1


def test_divergences_of_r_drop_are_their_formulas():
    """Of several labels that of each, of ordered ones of their probabilities, of numbers the square."""
    one, other = torch.randn(2, 3, 4, dtype=torch.float64)
    task = open_task("ordinal", list("abcd"))
    ordinal = ClassLoss("cross_entropy", logits_of=lambda outputs: task.class_logits(outputs, torch))
    ranks = [torch.from_numpy(task.class_logits(outputs.numpy())).exp() for outputs in (one, other)]
    labels = [torch.stack([p, 1 - p]) for p in (one.sigmoid(), other.sigmoid())]
    for loss, pair in ((ListLoss("cross_entropy"), labels), (ordinal, ranks)):
        kl = sum((p * (p / q).log()).sum() for p, q in (pair, pair[::-1]))
        assert float(loss.divergence(one, other)) == pytest.approx(float(kl / 2))
    assert float(ListLoss("cross_entropy").divergence(one, one)) == 0.0
    apart = NumberLoss("huber").divergence(one[:, :1], other[:, :1])
    assert float(apart) == pytest.approx(float(((one - other)[:, 0] ** 2).sum()))
