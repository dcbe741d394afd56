"""The loop against one written by hand in plain torch: python -m pytest tests/training/test_trainer.py"""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import kl_div, log_softmax
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSequenceClassification

from app.config.schema import TrainConfig
from app.modes.mode import Mode
from app.modes.torch_modes import Single
from app.runtime.group import Group
from app.training.step import StepResult, evaluate
from tests.modes.contract_worker import two_masks
from tests.tiny import loaders_of, open_tiny, tiny_model
from tests.training.tiny_training import SETTINGS as TINY
from tests.training.tiny_training import SMOOTHING, SmoothedCrossEntropy, Training

WEIGHTS = [0.5, 1.0, 3.0]
# 48 rows of train in batches of 10: the fifth and the tenth step have 8 rows. Every setting acts: some
# gradients are clipped and others are not, the warm-up ends with the third step, rows have different weights.
COMMON = replace(TINY, epochs=2, warmup=3, max_grad_norm=6.0)
SETTINGS = {
    "sgd": replace(COMMON, optimizer="sgd", learning_rate=0.05, weight_decay=0.05),
    "adamw": replace(COMMON, schedule="cosine", weight_decay=0.1, head_learning_rate=2e-3),
}
SETTINGS["r_drop"] = replace(SETTINGS["sgd"], r_drop=2.0)
# AdamW divides a gradient by its own size. A key's bias shifts all scores of a query alike, so its exact
# gradient is 0, and what rounding leaves of it is blown up to whole steps, in any two implementations.
WITHOUT_GRADIENT = {"sgd": (), "adamw": ("key.bias",), "r_drop": ()}
PACKED = pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])


@pytest.fixture(scope="module")
def singles(tmp_path_factory):
    """A prepared data file: (dataset, tokenizer, stores)."""
    return open_tiny(tmp_path_factory.mktemp("singles"), rows_per_label=20)


@pytest.fixture(scope="module", params=[False, True], ids=["singles", "pairs"])
def rows(request, singles, tmp_path_factory):
    """The same, and a data file of sentence pairs."""
    return open_tiny(tmp_path_factory.mktemp("pairs"), 20, pairs=True) if request.param else singles


def run(
    rows,
    config: TrainConfig,
    weights: list[float] | None = WEIGHTS,
    after_step=lambda state, log, mode: None,
    prepare=lambda mode: None,
    **options,
) -> tuple[dict[str, torch.Tensor], list[StepResult], Mode]:
    """Train as a job does; returns the weights, what each step logged, and the mode."""
    training = Training(rows, config, **options)
    mode = training.mode
    training.loss = SmoothedCrossEntropy("cross_entropy", None if weights is None else torch.tensor(weights))
    if config.r_drop:
        mode.module.model.classifier.register_forward_pre_hook(two_masks)
    prepare(mode)
    training.run(after_step=lambda state, log: after_step(state, log, mode))
    return training.weights, training.steps, mode


def losses_of(logs: list[StepResult]) -> list[float]:
    return [float(log.loss_sum) for log in logs]


def norms_of(logs: list[StepResult]) -> list[float]:
    return [float(log.grad_norm) for log in logs]


def reference(rows, config: TrainConfig) -> tuple[dict[str, torch.Tensor], list[float], list[float]]:
    """The same training in plain torch and transformers: whole batches, padded; returns weights, losses,
    gradient norms."""
    dataset, tokenizer, stores = rows
    ours = tiny_model(vocab_size=len(tokenizer)).model
    configuration = deepcopy(ours.config)
    configuration._attn_implementation = "eager"
    model = AutoModelForSequenceClassification.from_config(configuration, attn_implementation="eager").train()
    model.load_state_dict(ours.state_dict())
    split, store = dataset.splits["train"], stores["train"]
    groups = []
    for name, parameter in model.named_parameters():
        decay = 0.0 if parameter.ndim == 1 else config.weight_decay
        is_head = "pooler" in name or "classifier" in name
        rate = (is_head and config.head_learning_rate) or config.learning_rate
        groups.append({"params": [parameter], "weight_decay": decay, "scale": rate / config.learning_rate})
    kind = torch.optim.SGD if config.optimizer == "sgd" else torch.optim.AdamW
    optimizer = kind(groups, lr=0.0)
    kept = torch.arange(model.config.hidden_size) % 2 * 2.0
    steps_per_epoch = int(np.ceil(len(split) / config.batch_size))
    total = steps_per_epoch * config.epochs
    losses, norms = [], []
    for step in range(total):
        order = np.random.default_rng([config.seed, step // steps_per_epoch]).permutation(len(split))
        first = step % steps_per_epoch * config.batch_size
        batch = order[first : first + config.batch_size]
        ids = [torch.tensor(store.row(split.rows[at]).astype(np.int64)) for at in batch]
        inputs = {
            "input_ids": pad_sequence(ids, batch_first=True),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        }
        if store.second_starts is not None:
            starts = torch.tensor(store.second_starts[split.rows[batch]])
            places = torch.arange(inputs["input_ids"].shape[1])
            inputs["token_type_ids"] = (places >= starts[:, None]).long() * inputs["attention_mask"]
        labels = torch.tensor(split.labels[batch])
        target = torch.nn.functional.one_hot(labels, 3) * (1 - SMOOTHING) + SMOOTHING / 3
        if config.r_drop:
            pooled = model.bert(**inputs).pooler_output
            outputs = [model.classifier(pooled * mask) for mask in (kept, 2 - kept)]
        else:
            outputs = [model(**inputs).logits]
        outputs = [log_softmax(logits, dim=1) for logits in outputs]
        loss = sum(-(target * torch.tensor(WEIGHTS) * found).sum() for found in outputs) / len(outputs)
        if config.r_drop:
            both = (outputs, outputs[::-1])
            divergence = sum(kl_div(*pair, reduction="sum", log_target=True) for pair in both)
            loss = loss + config.r_drop * divergence / 2
        loss = loss / len(batch)
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


@pytest.fixture(scope="module")
def expected(rows):
    """What the hand-written loop makes of all settings."""
    return {name: reference(rows, config) for name, config in SETTINGS.items()}


def difference(found: dict, expected: dict, but: tuple[str, ...] = ()) -> float:
    """Return the largest absolute difference of any weight whose name does not end in one of `but`."""
    assert found.keys() == expected.keys()
    names = [name for name in expected if not (but and name.endswith(but))]
    return max(float((found[name] - expected[name]).abs().max()) for name in names)


@PACKED
@pytest.mark.parametrize("accumulation", [1, 3, 7])
@pytest.mark.parametrize("settings", SETTINGS)
def test_weights_are_those_of_a_hand_written_loop(rows, expected, settings, accumulation, packed):
    config = replace(SETTINGS[settings], accumulation_steps=accumulation)
    weights, logs, _ = run(rows, config, packed=packed)
    wanted, losses, norms = expected[settings]
    assert difference(weights, wanted, WITHOUT_GRADIENT[settings]) <= 1e-6
    assert [log.rows for log in logs] == [10, 10, 10, 10, 8] * 2
    assert [float(log.loss_sum) / log.rows for log in logs] == pytest.approx(losses, abs=1e-4)
    assert norms_of(logs) == pytest.approx(norms, rel=1e-3)


def test_the_comparison_sees_what_it_should(rows, expected):
    """The settings act: clipping in some steps only, and each setting moves the weights by more than the
    tolerance."""
    _, _, norms = expected["sgd"]
    assert min(norms) < SETTINGS["sgd"].max_grad_norm < max(norms)
    others = {"max_grad_norm": 0.0, "weight_decay": 0.0, "warmup": 0, "batch_size": 12, "seed": 1}
    for name, value in (others | {"head_learning_rate": 0.01}).items():
        weights, *_ = run(rows, replace(SETTINGS["sgd"], **{name: value}))
        assert difference(weights, expected["sgd"][0]) > 1e-4, name
    weights, *_ = run(rows, SETTINGS["sgd"], weights=None)
    assert difference(weights, expected["sgd"][0]) > 1e-4
    assert difference(expected["r_drop"][0], expected["sgd"][0]) > 1e-3


def sharded(num_shards: int, shard: int) -> type[Mode]:
    """A mode of several processes, of which only one is here; it keeps the gradients of its own rows."""

    class ShardGroup(Group):
        rank = shard
        world_size = num_shards

    class Shard(Mode):
        group_class = ShardGroup

        def step(self, max_norm: float) -> tuple[torch.Tensor, bool]:
            self.gradients = {name: p.grad.clone() for name, p in self.module.named_parameters()}
            return torch.zeros(()), False

    return Shard


@pytest.mark.parametrize(
    ("num_shards", "batch_size", "accumulation"), [(1, 10, 3), (3, 10, 1), (3, 10, 3), (8, 5, 1), (4, 2, 100)]
)
@PACKED
def test_gradients_of_all_shards_add_up_to_those_of_the_batch(
    singles, packed, num_shards, batch_size, accumulation
):
    """Also where a shard has no row of the batch, and runs a stand-in."""
    config = replace(SETTINGS["sgd"], max_steps=1, batch_size=batch_size, accumulation_steps=accumulation)
    whole = run(singles, replace(config, accumulation_steps=1), mode_class=sharded(1, 0))
    classes = [sharded(num_shards, index) for index in range(num_shards)]
    shards = [run(singles, config, packed=packed, mode_class=mode_class) for mode_class in classes]
    for name, gradient in whole[2].gradients.items():
        total = sum(mode.gradients[name] for _, _, mode in shards)
        torch.testing.assert_close(total, gradient, atol=2e-6, rtol=1e-4, msg=name)
    loss_sum = sum(float(logs[0].loss_sum) for _, logs, _ in shards)
    assert loss_sum == pytest.approx(float(whole[1][0].loss_sum), rel=1e-5)


@pytest.mark.parametrize(("max_steps", "steps", "last"), [(7, 7, 0.05 / 4), (1000, 10, 0.05 / 7)])
def test_max_steps_shortens_the_schedule_and_the_training(singles, max_steps, steps, last):
    _, logs, _ = run(singles, replace(SETTINGS["sgd"], max_steps=max_steps))
    assert len(logs) == steps
    assert logs[-1].learning_rate == pytest.approx(last)


def test_dropout_is_a_function_of_seed_and_step_whatever_happens_between_steps(singles):
    """Others may draw numbers, and evaluations compute without dropout."""

    def look(state, log, mode):
        torch.rand(3)
        loader = loaders_of(singles[0], singles[2], mode.module, packed=True)["dev"]
        np.testing.assert_array_equal(evaluate(mode, loader, 4), evaluate(mode, loader, 4))

    config = replace(SETTINGS["sgd"], max_steps=4)
    first, *_ = run(singles, config, dropout=0.3)
    torch.manual_seed(99)
    again, *_ = run(singles, config, dropout=0.3, after_step=look)
    assert difference(again, first) == 0.0
    other, *_ = run(singles, replace(config, seed=43), dropout=0.3)
    assert difference(other, first) > 1e-4


def test_bf16_trains_near_fp32(singles):
    config = replace(SETTINGS["sgd"], max_steps=5)
    plain, exact, _ = run(singles, config)
    weights, logs, mode = run(singles, replace(config, precision="bf16"))
    assert {value.dtype for value in weights.values()} == {torch.float32}
    assert losses_of(logs) == pytest.approx(losses_of(exact), rel=0.1)
    assert 0 < difference(weights, plain) < 0.05
    assert mode.scaler is None


class TorchClipping(Single):
    """Clips as torch does it, which multiplies every gradient in every step."""

    def clip(self, max_norm: float) -> torch.Tensor:
        return torch.nn.utils.clip_grad_norm_(self.module.parameters(), max_norm or float("inf"))


@pytest.mark.parametrize("max_norm", [0.0, 1e6, 6.0, 0.01])
def test_clipping_has_the_bits_of_torchs_own(singles, max_norm):
    config = replace(SETTINGS["adamw"], max_grad_norm=max_norm)
    weights, logs, _ = run(singles, config)
    torchs, torch_logs, _ = run(singles, config, mode_class=TorchClipping)
    assert difference(weights, torchs) == 0.0
    assert norms_of(logs) == norms_of(torch_logs)


def with_scale(scale: float):
    def prepare(mode: Mode) -> None:
        mode.scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    return prepare


@pytest.mark.parametrize(("optimizer", "limit"), [("sgd", 2e-3), ("adamw", 5e-3)])
def test_fp16_norm_and_clipping_are_of_unscaled_gradients(singles, optimizer, limit):
    config = replace(SETTINGS[optimizer], max_steps=3, max_grad_norm=0.5, accumulation_steps=3)
    plain, exact, _ = run(singles, config)
    weights, logs, mode = run(singles, replace(config, precision="fp16"), prepare=with_scale(1024.0))
    assert norms_of(logs) == pytest.approx(norms_of(exact), rel=0.05)
    assert min(norms_of(logs)) > 0.5, "clipping must act"
    assert difference(weights, plain) < limit
    assert mode.scaler.get_scale() == 1024.0
    assert not any(log.skipped for log in logs)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_fp16_overflow_skips_the_step_and_the_schedule_waits(singles, optimizer):
    config = replace(SETTINGS[optimizer], precision="fp16", epochs=5, accumulation_steps=2)
    seen = []

    def look(state, log, mode):
        weights = {name: value.clone() for name, value in mode.module.state_dict().items()}
        seen.append((log, state.step, state.updates, mode.scaler.get_scale(), weights))

    start = tiny_model(vocab_size=len(singles[1])).state_dict()
    run(singles, config, prepare=with_scale(2.0**32), after_step=look)
    skipped = [log.skipped for log, *_ in seen]
    first = skipped.index(False)
    assert first > 3, "the scale must be far too large at first"
    for index, (log, step, updates, scale, weights) in enumerate(seen[:first]):
        assert (step, updates, scale) == (index + 1, 0, 2.0 ** (31 - index))
        assert difference(weights, start) == 0.0
        # Still the first of the warm-up
        assert log.learning_rate == pytest.approx(config.learning_rate / 3)
    log, _, updates, _, weights = seen[first]
    assert (updates, log.learning_rate) == (1, pytest.approx(config.learning_rate / 3))
    assert difference(weights, start) > 0
    assert all(torch.isfinite(value).all() for value in weights.values())
    assert seen[-1][1:3] == (25, skipped.count(False))
