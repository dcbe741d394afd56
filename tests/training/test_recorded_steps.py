"""Whole steps that are recorded, optimizer included: python -m pytest tests/training/test_recorded_steps.py

A recorder that does the work again stands for the graph.
"""

from dataclasses import replace

import pytest
import torch

from app.training.planned_shapes import PlannedShapes
from app.training.progress import RunProgress
from app.training.recorded_passes import RecordedPasses
from app.training.recorded_steps import RecordedSteps
from tests.tiny import open_tiny
from tests.training.test_cuda_graphs import SETTINGS as PASSES
from tests.training.test_cuda_graphs import (
    TOLERANCES,
    Again,
    Recording,
    Refusing,
    SmallForRecordings,
    Stale,
    Wrong,
    assert_same_job,
    filled,
    run,
)
from tests.training.test_planned_shapes import RunsOut, Training, assert_same_bits

SETTINGS = replace(PASSES, cuda_graphs=None)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20, pairs=True)


@pytest.mark.parametrize("max_norm", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recorded_steps_are_the_same_job(rows, precision, max_norm):
    config = replace(SETTINGS, precision=precision, max_grad_norm=max_norm)
    found = run(rows, config, Recording, filled)
    counts = found[3].recorder.counts
    assert counts["replayed"] > 10
    assert 0 < counts["recorded"] < counts["replayed"] / 2
    assert not found[3].keep_gradients
    assert all(p.grad is None for p in found[3].module.parameters()), "they exist only inside a step"
    assert_same_job(found, run(rows, config), TOLERANCES[precision])


class Looking(Again):
    """Looks at the optimizer while it records."""

    def record(self, work):
        groups = work.func.__self__.strategy.optimizer.param_groups
        self.seen = [(group["capturable"], group["lr"].dtype) for group in groups]
        self.groups = groups
        return super().record(work)


def test_torch_records_adamw_only_if_it_is_capturable_and_warns_of_that_in_other_steps(rows, monkeypatch):
    monkeypatch.setattr(Recording, "kind", Looking)
    recorder = run(rows, replace(SETTINGS, max_steps=2), Recording, filled)[3].recorder
    assert set(recorder.seen) == {(True, torch.float32)}
    assert not any(group["capturable"] for group in recorder.groups)


def test_a_replayed_step_has_the_bits_of_one_that_is_not_recorded(rows, monkeypatch):
    recorded = Training(rows, SETTINGS, dropout=0.3)
    recorded.run(RunProgress())
    buckets = recorded.loader.layout.buckets
    monkeypatch.setattr(Recording, "kind", Refusing)
    # Batches are filled up as before, though nothing is recorded: masks are drawn for the tokens of padding
    # too.
    monkeypatch.setattr(PlannedShapes, "set_buckets", lambda shapes, chosen: fill_up(shapes.loader, buckets))
    eager = Training(rows, SETTINGS, dropout=0.3)
    eager.run(RunProgress())
    assert (recorded.counts["replayed"] > 10, eager.counts["replayed"]) == (True, 0)
    assert_same_bits(eager, recorded)


def fill_up(loader, buckets) -> None:
    loader.layout = replace(loader.layout, buckets=buckets)


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulation_steps": 2},
        {"micro_batch_size": 5},
        {"optimizer": "sgd"},
        {"precision": "fp16"},
        {"on_nonfinite": "skip"},
        {"cuda_graphs": "passes"},
    ],
    ids=str,
)
def test_passes_are_recorded_where_a_step_cannot_be(rows, settings):
    training = Training(rows, replace(SETTINGS, **settings))
    passes = training.passes(RunProgress())
    assert type(passes.run_pass) is RecordedPasses
    assert training.strategy.keep_gradients
    assert all(isinstance(group["lr"], float) for group in training.strategy.optimizer.param_groups)
    assert type(Training(rows, SETTINGS).passes(RunProgress()).run_pass) is RecordedSteps


def test_the_warm_up_changes_no_weight_and_makes_an_empty_state(rows):
    training = Training(rows, SETTINGS, dropout=0.3)
    before, random_numbers = training.strategy.full_state.weights(), torch.get_rng_state()
    training.passes(RunProgress()).warm_up()
    assert training.counts["replayed"] > 0
    after = training.strategy.full_state.weights()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert not any(tensor.any() for tensor in training.strategy.full_state.optimizer().values())
    assert torch.equal(torch.get_rng_state(), random_numbers)


def test_the_warm_up_of_a_resumed_run_puts_the_state_back(rows):
    training = Training(rows, SETTINGS)
    state = training.run(RunProgress(), until=3)
    before = training.strategy.full_state.optimizer()
    training.passes(state).warm_up()
    after = training.strategy.full_state.optimizer()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def resume(stopped: Training, new: Training, state: RunProgress) -> Training:
    """Train to the end from where a training has stopped, as a new process does it."""
    new.strategy.full_state.load_weights(stopped.strategy.full_state.weights())
    new.strategy.full_state.load_optimizer(stopped.strategy.full_state.optimizer())
    new.losses = stopped.losses
    new.run(state)
    return new


@pytest.mark.parametrize("stop", [1, 7])
def test_a_run_of_recorded_steps_that_was_stopped_and_resumed_has_the_same_bits(rows, stop):
    whole, parts = (Training(rows, SETTINGS, dropout=0.3) for _ in range(2))
    whole.run(RunProgress())
    state = parts.run(RunProgress(), until=stop)
    resumed = resume(parts, Training(rows, SETTINGS, dropout=0.3), state)
    assert resumed.counts["replayed"] > 0
    assert_same_bits(resumed, whole)


class FrozenRate(Again):
    """Uses the learning rates of the recording for ever, as a graph does with numbers."""

    def record(self, work):
        groups = work.func.__self__.strategy.optimizer.param_groups
        rates = [group["lr"].clone() for group in groups]

        def replay():
            now = [group["lr"].clone() for group in groups]
            for group, rate in zip(groups, rates, strict=True):
                group["lr"].copy_(rate)
            try:
                return work()
            finally:
                for group, rate in zip(groups, now, strict=True):
                    group["lr"].copy_(rate)

        return replay


class EmptyState(Again):
    """Begins with an empty state of the optimizer at every replay, as a graph does that has made it."""

    def record(self, work):
        def replay():
            for state in work.func.__self__.strategy.optimizer.state.values():
                torch._foreach_zero_(list(state.values()))
            return work()

        return replay


class TooLittle(Again):
    """Leaves out the update of the weights."""

    def record(self, work):
        steps = work.func.__self__

        def replay():
            loss, outputs = steps.run_pass(*work.args)
            norm = steps.strategy.clip(steps.max_norm)
            steps.strategy.zero_grad()
            return loss, outputs, norm

        return replay


@pytest.mark.parametrize("kind", [Refusing, Stale, Wrong, FrozenRate, EmptyState, TooLittle])
def test_a_recorded_step_that_fails_or_differs_is_given_up(rows, caplog, monkeypatch, kind):
    monkeypatch.setattr(Recording, "kind", kind)
    found = run(rows, SETTINGS, Recording, filled)
    (warning,) = [record.getMessage() for record in caplog.records if "CUDA graphs" in record.getMessage()]
    assert ("operation not permitted" if kind is Refusing else "other results") in warning
    assert_same_job(found, run(rows, SETTINGS))


def test_steps_run_unrecorded_where_not_even_one_row_can_be_recorded(rows, monkeypatch, caplog):
    monkeypatch.setattr(Recording, "kind", SmallForRecordings)
    config = replace(SETTINGS, max_steps=5)
    found = run(rows, config, Recording, filled)
    assert "not recorded as CUDA graphs and may be slower: out of memory in the proof" in caplog.text
    assert found[3].recorder.counts["replayed"] == 0
    assert_same_job(found, run(rows, config))


def test_after_memory_ran_out_in_a_step_passes_are_recorded_and_resumed_with_the_same_bits(rows):
    whole, parts = RunsOut(rows, SETTINGS, dropout=0.3), RunsOut(rows, SETTINGS, dropout=0.3)
    whole.run(RunProgress())
    assert whole.strategy.keep_gradients
    state = parts.run(RunProgress(), until=6)
    assert state.micro_batch_size == 5
    resumed = resume(parts, RunsOut(rows, SETTINGS, dropout=0.3), state)
    assert_same_bits(resumed, whole)
