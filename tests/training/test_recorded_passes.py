"""Passes as CUDA graphs. Without a GPU the same code runs with plain calls in the place of graphs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from app.batching.collate import FilledSize, StepMasks
from app.batching.joined_tensors import joined, places_of, views_of
from app.modes.mode import DDP, Single
from app.training import recorded_passes
from app.training.step import Step
from tests.modes.broken_modes import PlainCalls
from tests.training.tiny_training import SETTINGS, Training

PAIRS = pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
# The last batch of each epoch is smaller
ON_GPU = replace(SETTINGS, device="cuda", batch_size=16, epochs=3)


class Replayed(Single):
    """One process that computes recorded passes by plain calls."""

    def recorder(self):
        return PlainCalls()


class NotRecorded(Single):
    """One process that launches each kernel."""

    def recorder(self):
        return None


class Float64(Training):
    """A training in float64, in which passes can be recorded."""

    def __post_init__(self) -> None:
        default_dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__post_init__()
        torch.set_default_dtype(default_dtype)
        self.loss = replace(self.loss, weights=self.loss.weights.double())


def test_tensors_in_one_buffer_are_the_same():
    tensors = {
        "ids": torch.arange(7)[None],
        "offsets": torch.tensor([0, 3, 7], dtype=torch.int32),
        "is_padding": torch.tensor([[True], [False], [True]]),
        "none": torch.empty(0, dtype=torch.int64),
        "labels": torch.rand(3, 2, dtype=torch.float64),
    }
    places = places_of(tensors)
    views = views_of(joined(tensors, places), places)
    assert list(views) == list(tensors)
    for name, tensor in tensors.items():
        assert views[name].dtype == tensor.dtype
        assert torch.equal(views[name], tensor)


@PAIRS
@pytest.mark.parametrize("with_dropout", [False, True], ids=["no_dropout", "dropout"])
def test_rows_of_padding_change_no_loss_and_no_gradient(pairs, with_dropout):
    training = Float64(pairs=pairs, varlen=True, dropout=0.3 if with_dropout else 0.0)
    module = training.mode.module
    loader = training.loader
    rows = np.arange(7)
    masks = StepMasks(seed=1, step=3) if with_dropout else None
    batch = loader.host_batch(rows, 3, masks)
    end = batch.inputs["input_ids"].shape[1]
    filled = loader.host_batch(rows, 3, masks, FilledSize(num_rows=10, num_tokens=end + 70, longest=40))
    assert filled.inputs["input_ids"].shape == (1, end + 70)
    assert filled.inputs["row_offsets"].diff().tolist()[7:] == [23, 23, 24]
    assert filled.inputs["longest"] == 40
    results = []
    for loaded in (batch, filled):
        module.zero_grad()
        loss = training.loss(loaded.row_outputs(module(**loaded.inputs)), loaded.labels)
        loss.backward()
        results.append((loss.detach(), [parameter.grad for parameter in module.parameters()]))
    torch.testing.assert_close(results[1], results[0], atol=1e-12, rtol=1e-12)


@PAIRS
@pytest.mark.parametrize(
    ("changes", "shape"),
    [({}, {}), ({"precision": "fp16"}, {}), ({}, {"frozen": "embeddings"})],
    ids=["usual", "fp16", "frozen"],
)
def test_replayed_passes_train_the_same_weights(pairs, changes, shape, caplog):
    caplog.set_level("INFO")
    config = replace(SETTINGS, **changes)
    options = {"pairs": pairs, "varlen": True, "dropout": 0.2, **shape}
    kind = Training if config.precision == "fp16" else Float64
    replayed = kind(config, Replayed, **options).run()
    assert "passes are recorded as CUDA graphs of" in caplog.text
    launched = kind(config, NotRecorded, **options).run()
    limit = 2e-3 if config.precision == "fp16" else 1e-9
    assert len(replayed.losses) == 4 * replayed.plan.steps_per_epoch
    assert replayed.losses == pytest.approx(launched.losses, rel=limit)
    assert replayed.norms == pytest.approx(launched.norms, rel=10 * limit)
    for name, value in launched.weights.items():
        difference = (replayed.weights[name] - value).norm()
        # The exact gradient of this bias is 0, which AdamW blows up
        assert "key.bias" in name or difference <= limit * value.norm() + limit, name


class CountsUpdates(PlainCalls):
    num_recorded = 0

    def record_and_run(self, function):
        self.num_recorded += 1
        return super().record_and_run(function)


class UpdatesCounted(Single):
    """One process that says how many updates were recorded."""

    def recorder(self):
        self.updates = CountsUpdates()
        return self.updates


def test_an_update_is_recorded_for_the_gradients_of_each_size(monkeypatch):
    monkeypatch.setattr(recorded_passes, "ROUND_TOKENS_TO", 1)
    training = Training(SETTINGS, UpdatesCounted, varlen=True, dropout=0.2).run()
    num_steps = 4 * training.plan.steps_per_epoch
    recorder = training.mode.updates
    # The first update makes the state of AdamW; batches have two sizes
    assert recorder.num_recorded == 2
    # Both passes of each step, and all updates but the first and those that are recorded
    assert recorder.num_calls == 3 * num_steps - 3
    [rate] = {group["lr"].item() for group in training.mode.optimizer.param_groups}
    assert rate == pytest.approx(training.steps[-1].learning_rate)


def test_a_run_with_recorded_updates_resumes_bit_identical():
    whole = Training(SETTINGS, UpdatesCounted, varlen=True, dropout=0.2).run(until=6)
    resumed = Training(SETTINGS, UpdatesCounted, varlen=True, dropout=0.2)
    resumed.mode.load_weights(dict(whole.weights))
    resumed.mode.load_optimizer_state(dict(whole.mode.optimizer_state()))
    resumed.state.step = 6
    resumed.state.updates = 6
    resumed.run(until=9)
    whole.run(until=9)
    assert resumed.losses == whole.losses[6:]
    weights = resumed.weights
    assert all(torch.equal(weights[name], value) for name, value in whole.weights.items())


@pytest.mark.parametrize("changes", [{"precision": "fp16"}, {"optimizer": "sgd"}])
def test_updates_that_the_host_waits_for_or_of_another_optimizer_are_not_recorded(changes):
    training = Training(replace(SETTINGS, **changes), UpdatesCounted, varlen=True).run(until=4)
    assert training.mode.updates.num_calls == 2 * 4
    assert training.mode.updates.num_recorded == 0


class Waiting(CountsUpdates):
    def record_and_run(self, function):
        self.num_recorded += 1
        raise RuntimeError("operation not permitted when stream is capturing")


class UpdatesWait(UpdatesCounted):
    def recorder(self):
        self.updates = Waiting()
        return self.updates


def test_updates_that_cannot_be_recorded_are_made_kernel_by_kernel(caplog):
    training = Training(SETTINGS, UpdatesWait, varlen=True, dropout=0.2).run(until=6)
    message = "updates are not recorded as CUDA graphs: operation not permitted when stream is capturing"
    assert caplog.text.count(message) == training.mode.updates.num_recorded == 1
    training.assert_same_bits(Training(SETTINGS, Replayed, varlen=True, dropout=0.2).run(until=6))


class Counted(Replayed):
    """Counts the passes that are launched, of which an evaluation or a step that does not fit has some."""

    num_launched = 0

    def forward(self, inputs):
        self.num_launched += 1
        return super().forward(inputs)


def test_every_step_that_fits_is_replayed_and_another_is_launched():
    training = Training(SETTINGS, Counted, varlen=True).run()
    assert training.mode.num_launched == 0
    step = Step(training.mode, training.loader, training.loss)
    step.prepare(training.plan, 5, None)
    batch = np.arange(8)
    weights = training.weights
    for shards, num_launched in (([[batch]], 0), ([[batch[:4], batch[4:]]], 2), ([[np.arange(48)]], 3)):
        step.gradients(0, np.concatenate(shards[0]), shards)
        assert training.mode.num_launched == num_launched
    assert all(torch.equal(training.weights[name], value) for name, value in weights.items())


@pytest.mark.parametrize(
    ("changes", "varlen", "reason"),
    [
        ({"accumulation_steps": 2}, True, "steps have several micro-batches"),
        ({"gradient_checkpointing": True}, True, "train.gradient_checkpointing computes layers again"),
        ({}, False, "attention of this model has no kernel for rows of any length"),
        ({"batch_size": 1}, True, "batches have too few tokens"),
    ],
)
def test_steps_that_cannot_be_replayed_are_launched(changes, varlen, reason, caplog):
    caplog.set_level("INFO")
    training = Training(replace(SETTINGS, **changes), Counted, varlen=varlen).run(until=2)
    assert training.mode.num_launched == 2 * changes.get("accumulation_steps", 1)
    assert f"Kernels are launched one by one: {reason}" in caplog.text
    assert "as CUDA graphs" not in caplog.text


class FewBytes(PlainCalls):
    def has_memory_for(self, passes, other_bytes):
        passes()
        return False


class TooSmall(Counted):
    def recorder(self):
        return FewBytes()


def test_without_memory_for_graphs_each_kernel_is_launched(caplog):
    training = Training(SETTINGS, TooSmall, varlen=True, dropout=0.3).run(until=3)
    assert "passes are not recorded as CUDA graphs: there is too little memory for them" in caplog.text
    assert training.mode.num_launched == 3
    training.assert_same_bits(Training(SETTINGS, NotRecorded, varlen=True, dropout=0.3).run(until=3))


class RunsOut(PlainCalls):
    """Memory runs out when a recording is replayed for the third time."""

    num_calls = 0

    def record(self, function):
        function()

        def replay():
            self.num_calls += 1
            if self.num_calls > 5:
                raise torch.OutOfMemoryError("out of memory")
            function()

        return replay


class ShortOfMemory(Counted):
    def recorder(self):
        return RunsOut()


def test_after_memory_ran_out_in_a_replay_steps_are_launched_in_smaller_micro_batches(caplog):
    caplog.set_level("INFO")
    training = Float64(SETTINGS, ShortOfMemory, varlen=True, dropout=0.3).run(until=6)
    assert "memory ran out in step 3 with micro-batches of 10 rows" in caplog.text
    assert training.mode.num_launched == 2 * 4
    launched = Float64(SETTINGS, NotRecorded, varlen=True, dropout=0.3).run(until=6)
    # Sums of several micro-batches are fp32
    assert training.losses == pytest.approx(launched.losses, rel=1e-6)


@PAIRS
@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_recorded_passes_train_the_same_weights(pairs, precision, caplog):
    caplog.set_level("INFO")
    config = replace(ON_GPU, precision=precision)
    recorded = Training(config, pairs=pairs, varlen=True).run()
    assert "recorded as CUDA graphs" in caplog.text
    caplog.clear()
    launched = Training(config, NotRecorded, pairs=pairs, varlen=True).run()
    assert "as CUDA graphs" not in caplog.text
    limit = 1e-4 if precision == "fp32" else 0.03
    assert len(recorded.losses) == 3 * recorded.plan.steps_per_epoch
    assert recorded.losses == pytest.approx(launched.losses, rel=limit)
    weights = recorded.weights
    for name, value in launched.weights.items():
        # Its exact gradient is 0, which AdamW blows up
        if "key.bias" not in name:
            assert (weights[name] - value).norm() <= limit * value.norm() + 1e-3, name


@PAIRS
@pytest.mark.gpu
def test_dropout_of_recorded_passes_depends_on_step_and_seed(pairs):
    still = replace(ON_GPU, learning_rate=0.0, weight_decay=0.0)

    def losses(seed: int) -> list[float]:
        return Training(replace(still, seed=seed), pairs=pairs, varlen=True, dropout=0.5).run().losses

    first = losses(1)
    assert losses(1) == pytest.approx(first, rel=1e-5)
    assert losses(2) != pytest.approx(first, rel=1e-3)
    training = Training(still, pairs=pairs, varlen=True, dropout=0.5)
    # The same rows in each step, whose dropout differs
    training.plan = type("SamePlan", (), {"steps_per_epoch": 4, "batch": lambda self, step: np.arange(16)})()
    assert len({round(loss, 4) for loss in training.run().losses}) == 12


@PAIRS
@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{"accumulation_steps": 2}, {"gradient_checkpointing": True}])
def test_other_steps_are_not_recorded(pairs, changes, caplog):
    caplog.set_level("INFO")
    config = replace(ON_GPU, **changes)
    Training(config, pairs=pairs, varlen=True).run()
    assert "as CUDA graphs" not in caplog.text


@PAIRS
@pytest.mark.gpu
def test_a_model_that_cannot_be_recorded_is_trained(pairs, caplog, monkeypatch):
    training = Training(ON_GPU, pairs=pairs, varlen=True)
    forward = training.mode.module.forward

    def waiting(**inputs):
        outputs = forward(**inputs)
        # A recording must not wait for the device
        float(outputs.sum())
        return outputs

    monkeypatch.setattr(training.mode.module, "forward", waiting)
    losses = training.run().losses
    assert "not recorded as CUDA graphs" in caplog.text
    launched = Training(ON_GPU, NotRecorded, pairs=pairs, varlen=True).run()
    assert losses == pytest.approx(launched.losses, rel=1e-4)


@pytest.mark.gpu
def test_masks_of_replayed_passes_differ_from_rank_to_rank():
    """Those of attention, which its kernel draws; the others belong to rows."""
    training = Training(ON_GPU, varlen=True, dropout=0.5)
    step = Step(training.mode, training.loader, training.loss)
    training.mode.module.train()
    step.prepare(training.plan, 4, None)
    assert step.recorded is not None
    rows = np.arange(16)
    losses = []
    for rank in (0, 1, 0):
        training.mode.group.rank = rank
        result = step.gradients(0, rows, [[rows], [rows]])
        losses.append(float(result.loss_sum))
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)


@pytest.mark.gpu
def test_ddp_in_one_process_replays_passes_as_one_process_does(monkeypatch, caplog):
    caplog.set_level("INFO")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    single = Training(ON_GPU, varlen=True).run()
    caplog.clear()
    ddp = Training(ON_GPU, DDP, varlen=True)
    ddp.run()
    ddp.mode.__exit__(None, None, None)
    assert "recorded as CUDA graphs" in caplog.text
    assert ddp.losses == pytest.approx(single.losses, rel=1e-4)
