"""Whole steps that are replayed as CUDA graphs: python -m pytest tests/training/test_recorded_step.py

Without a GPU, a recorder that does the work again stands for the graph: it too reads and writes the memory of
the recording.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.batching.collate import Layout
from app.batching.plan import BatchPlan
from app.config.schema import Config
from app.errors import InputError
from app.run.assembly import check_cuda_graphs
from app.strategies.ddp import DDP
from app.strategies.single import Single
from app.training import recorded_step
from app.training.recorded_step import RecordedStep, batch_sizes
from tests.tiny import open_tiny
from tests.training.tiny_training import SETTINGS as PLAIN
from tests.training.tiny_training import TOLERANCES, Training

SETTINGS = replace(PLAIN, cuda_graphs=True)


class Again:
    """Does recorded work again, and counts."""

    def __init__(self, device) -> None:
        self.counts = Counter()

    def run(self, work):
        self.counts["run"] += 1
        return work()

    def record(self, work):
        self.counts["recorded"] += 1

        def replay():
            self.counts["replayed"] += 1
            return self.replay(work)

        return replay

    def replay(self, work):
        return work()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20, pairs=True)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    use(monkeypatch, Again)
    # Small batches of short rows get two sizes
    monkeypatch.setattr(recorded_step, "ROUND_TOKENS_TO", 8)


def use(monkeypatch, kind: type[Again]) -> None:
    """Let steps be recorded by another stand-in; that of the last training is `kind.last`."""

    def new(device):
        kind.last = kind(device)
        return kind.last

    monkeypatch.setattr(recorded_step, "GraphRecorder", new)


def recorded(rows, config=SETTINGS, **options) -> Training:
    return Training(rows, config, varlen=True, **options)


@pytest.mark.parametrize("max_norm", [0.0, 0.1])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_replayed_steps_are_the_same_job(rows, precision, max_norm, caplog):
    config = replace(SETTINGS, precision=precision, max_grad_norm=max_norm)
    training = recorded(rows, config).run()
    counts = Again.last.counts
    assert "CUDA graphs" not in caplog.text
    assert counts["recorded"] == 2
    # Each size is verified by two; each epoch of 48 rows has four full batches
    assert counts["replayed"] == 2 * 2 + 4 * 4
    assert all(p.grad is None for p in training.strategy.module.parameters()), "they exist only inside a step"
    training.assert_same_job(Training(rows, replace(config, cuda_graphs=False)).run(), TOLERANCES[precision])


def test_dropout_is_a_function_of_the_step_and_a_resumed_run_has_the_same_bits(rows):
    whole = recorded(rows, dropout=0.3).run()
    whole.assert_same_bits(recorded(rows, dropout=0.3).run())
    stopped = recorded(rows, dropout=0.3).run(until=7)
    recorded(rows, dropout=0.3).resume(stopped).assert_same_bits(whole)


def test_the_sizes_are_the_85th_percentile_and_the_largest():
    lengths = np.arange(1, 101) + 100
    plan = BatchPlan(100, 1, seed=0)
    sizes = batch_sizes(plan, 100, lengths)
    assert list(sizes) == [192, 208]
    assert all(lengths[plan.batch(step)].sum() < size for size, step in sizes.items())
    assert list(batch_sizes(plan, 100, lengths * 0 + 15)) == [16], "one where both are the same"
    # The last batch of an epoch has fewer rows; steps behind the last row have none
    assert batch_sizes(BatchPlan(5, 10, seed=0), 3, lengths) == {}


def test_a_batch_is_filled_up_with_a_row_of_padding(rows):
    training = recorded(rows)
    training.loader.layout = replace(training.loader.layout, pad_id=4, first_position=2)
    step = RecordedStep.__new__(RecordedStep)
    step.loader, step.strategy = training.loader, training.strategy
    positions = np.arange(3)
    plain, filled = training.loader.load(positions, torch.device("cpu")), step.load(positions, 128)
    end = plain.inputs["input_ids"].shape[1]
    for name, padding in {"input_ids": 4, "position_ids": 2, "token_type_ids": 0}.items():
        assert torch.equal(filled.inputs[name][:, :end], plain.inputs[name]), name
        assert set(filled.inputs[name][0, end:].tolist()) == {padding}
        assert filled.inputs[name].shape == (1, 128)
    assert filled.inputs["row_offsets"].tolist() == [*plain.inputs["row_offsets"].tolist(), 128]
    assert filled.inputs["row_offsets"].dtype == torch.int32
    assert filled.inputs["first_tokens"].tolist() == [*plain.inputs["first_tokens"].tolist(), end]
    assert filled.inputs["longest"] <= 128, "torch's kernel for fp32 refuses more than all tokens"
    with torch.no_grad():
        found, expected = (of.row_outputs(training.strategy.forward(of.inputs)) for of in (filled, plain))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_recording_changes_no_weight_no_state_and_no_random_number(rows):
    training = recorded(rows, dropout=0.3).run(until=3)
    for fresh in (recorded(rows, dropout=0.3), training):
        before, random_numbers = fresh.weights, torch.get_rng_state()
        state = fresh.strategy.full_state.optimizer()
        fresh.state.stop = True
        fresh.run()
        assert Again.last.counts["replayed"] > 0
        after = fresh.weights
        assert all(torch.equal(after[name], value) for name, value in before.items())
        state_after = fresh.strategy.full_state.optimizer()
        assert all(torch.equal(state_after[name], value) for name, value in state.items())
        assert state or not any(value.any() for value in state_after.values())
        assert torch.equal(torch.get_rng_state(), random_numbers)


class Refusing(Again):
    def record(self, work):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")


class Stale(Again):
    """The same numbers for ever, and no gradients, as of a graph that has lost its inputs."""

    def record(self, work):
        results = work()
        return lambda: results


class Twice(Again):
    def replay(self, work):
        work()
        return work()


class FrozenDropout(Again):
    def record(self, work):
        state = torch.get_rng_state()

        def replay():
            torch.set_rng_state(state)
            return work()

        return replay


def optimizer_of(work) -> torch.optim.Optimizer:
    return work.func.__self__.strategy.optimizer


class FrozenRate(Again):
    """The learning rates of the recording for ever, as a graph has them that were numbers."""

    def record(self, work):
        groups = optimizer_of(work).param_groups
        rates = [group["lr"].clone() for group in groups]

        def replay():
            for group, rate in zip(groups, rates, strict=True):
                group["lr"].copy_(rate)
            return work()

        return replay


class EmptyState(Again):
    """AdamW starts again at every replay, as in a graph that has made its state."""

    def replay(self, work):
        for state in optimizer_of(work).state.values():
            torch._foreach_zero_(list(state.values()))
        return work()


class NoUpdate(Again):
    def replay(self, work):
        recorded, (batch, divisor) = work.func.__self__, work.args
        loss_sum, finite = recorded.step.forward_backward(batch, divisor)
        norm = recorded.strategy.clip(recorded.step.max_grad_norm)
        recorded.strategy.zero_grad()
        return loss_sum, finite, norm


class OldRowStarts(Again):
    """Reads where rows start from the recording."""

    def record(self, work):
        batch = work.args[0]
        starts = {name: batch.inputs[name].clone() for name in ("row_offsets", "first_tokens")}

        def replay():
            for name, value in starts.items():
                batch.inputs[name].copy_(value)
            return work()

        return replay


class NoGradientOfASmallTensor(Again):
    """The gradient of one bias is missing; its norm is far below that of the largest tensor."""

    def replay(self, work):
        recorded = work.func.__self__
        bias = recorded.strategy.module.get_parameter("model.bert.embeddings.LayerNorm.bias")
        hook = bias.register_hook(torch.zeros_like)
        try:
            return work()
        finally:
            hook.remove()


WRONG = [*(Refusing, Stale, Twice, FrozenRate, EmptyState, NoUpdate, OldRowStarts, NoGradientOfASmallTensor)]


@pytest.mark.parametrize("kind", WRONG)
def test_a_recording_that_fails_or_differs_is_given_up(rows, caplog, monkeypatch, kind):
    use(monkeypatch, kind)
    config = replace(SETTINGS, max_steps=6)
    training = recorded(rows, config).run()
    (warning,) = [message for message in caplog.messages if "CUDA graphs" in message]
    reason = "operation not permitted" if kind is Refusing else "a replayed step gave other results"
    assert warning.startswith(f"training steps are not replayed as CUDA graphs: {reason}")
    assert "\n" not in warning
    # With the bits, and the batches, of a run that never tried
    training.assert_same_bits(Training(rows, replace(config, cuda_graphs=False), varlen=True).run())
    assert all(isinstance(group["lr"], float) for group in training.strategy.optimizer.param_groups)


def test_frozen_dropout_masks_are_noticed(rows, caplog, monkeypatch):
    use(monkeypatch, FrozenDropout)
    recorded(rows, replace(SETTINGS, max_steps=1), dropout=0.3).run()
    assert "gave other results" in caplog.text


class TooLittleForState(Single):
    """Memory runs out while AdamW makes the state of the second parameter."""

    fails = True

    def update(self, norm):
        if self.fails:
            self.fails = False
            first, second = list(self.module.parameters())[:2]
            super().update(norm)
            for parameter in [key for key in self.optimizer.state if key is not first and key is not second]:
                del self.optimizer.state[parameter]
            for name in ("exp_avg", "exp_avg_sq"):
                del self.optimizer.state[second][name]
            raise torch.OutOfMemoryError("out of memory for the state")
        return super().update(norm)


def test_memory_that_runs_out_in_a_recording_leaves_a_whole_state(rows, caplog):
    config = replace(SETTINGS, max_steps=5)
    training = recorded(rows, config, strategy_class=TooLittleForState).run()
    assert "not replayed as CUDA graphs: out of memory for the state" in caplog.text
    training.assert_same_bits(Training(rows, replace(config, cuda_graphs=False), varlen=True).run())


class RunsOutLater(Single):
    """Memory is enough for the full batches, which are recorded, and not for the last one of an epoch."""

    def forward(self, inputs):
        if self.module.training and 4 < len(inputs["first_tokens"]) < 10:
            raise torch.OutOfMemoryError("out of memory for a batch that is not recorded")
        return super().forward(inputs)


def test_recordings_are_freed_where_memory_runs_out_in_another_step(rows, caplog):
    training = recorded(rows, strategy_class=RunsOutLater).run()
    assert "not replayed as CUDA graphs: memory ran out in a step" in caplog.text
    assert training.state.micro_batch_size == 4
    training.assert_same_job(Training(rows, PLAIN).run())


def test_what_is_asked_for_must_be_possible():
    varlen = Layout(packed=True, varlen=True)
    single, ddp = Single(Config()), DDP(Config())
    for strategy in (single, ddp):
        strategy.device = torch.device("cuda")
    check_cuda_graphs(SETTINGS, varlen, single, True)
    check_cuda_graphs(PLAIN, Layout(packed=False), ddp, False)
    wrong = [
        (SETTINGS, varlen, ddp, True, "one process of run_single.py"),
        (SETTINGS, varlen, Single(Config()), True, "a CUDA device"),
        (SETTINGS, Layout(packed=True), single, True, "train.attention varlen"),
        (SETTINGS, varlen, single, False, "classification without data.long windows"),
        (replace(SETTINGS, optimizer="sgd"), varlen, single, True, "train.optimizer adamw"),
        (replace(SETTINGS, precision="fp16"), varlen, single, True, "train.precision bf16 or fp32"),
        (replace(SETTINGS, on_nonfinite="skip"), varlen, single, True, "train.on_nonfinite stop"),
        (replace(SETTINGS, accumulation_steps=2), varlen, single, True, "train.accumulation_steps 1"),
        (replace(SETTINGS, micro_batch_size=5), varlen, single, True, "train.micro_batch_size none or auto"),
    ]
    for *values, missing in wrong:
        with pytest.raises(InputError, match=f"train.cuda_graphs true needs {missing}; or leave it out"):
            check_cuda_graphs(*values)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_graphs_are_the_same_job_on_a_gpu(rows, precision, caplog, monkeypatch):
    monkeypatch.undo()
    config = replace(SETTINGS, device="cuda", precision=precision)
    training = recorded(rows, config).run()
    assert "CUDA graphs" not in caplog.text
    plain = Training(rows, replace(config, cuda_graphs=False), varlen=True).run()
    training.assert_same_job(plain, 10 * TOLERANCES[precision])


@pytest.mark.gpu
def test_graphs_draw_the_masks_of_the_step_on_a_gpu(rows, caplog, monkeypatch):
    monkeypatch.undo()
    first, again = (recorded(rows, replace(SETTINGS, device="cuda"), dropout=0.3).run() for _ in range(2))
    assert "CUDA graphs" not in caplog.text
    assert first.losses == pytest.approx(again.losses, rel=1e-4)
    assert len(set(first.losses)) == len(first.losses)
