"""Passes that are recorded before the first step, in shapes planned beforehand: python -m pytest
tests/training/test_planned_shapes.py

A recorder that does the work again stands for the graph.
"""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.batching import buckets
from app.batching.plan import BatchPlan
from app.config.schema import Config
from app.outcomes.losses import CrossEntropy
from app.strategies.single import Single
from app.training import planned_shapes
from app.training.forward_backward import ForwardBackward
from app.training.loop import planned_steps, train
from app.training.optimizer import build_optimizer
from app.training.progress import RunProgress
from tests.tiny import loaders_of, open_tiny, tiny_model
from tests.training.test_cuda_graphs import SETTINGS, Again, Recording, assert_same_job, filled, run


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20, pairs=True)


@pytest.fixture(autouse=True)
def quick_recordings(monkeypatch):
    """Recordings that cost little, so that a short training has several shapes."""
    monkeypatch.setattr(buckets, "RECORDING", 0.5)


class Training:
    """A model with its loader and plan, trained with recorded passes."""

    def __init__(self, rows, config=SETTINGS, dropout=0.0, strategy_class=Recording):
        dataset, tokenizer, stores = rows
        self.config = config
        self.strategy = strategy_class(Config(train=config)).__enter__()
        model = tiny_model(vocab_size=len(tokenizer), dropout=dropout).train()
        self.loader = loaders_of(dataset, stores, model, True)["train"]
        self.strategy.setup(model, lambda module: build_optimizer(module, config, num_layers=2))
        self.loss = CrossEntropy(None, config.label_smoothing)
        self.plan = BatchPlan(len(self.loader), config.batch_size, config.seed)
        self.steps = planned_steps(self.plan, config)
        self.losses = []

    @property
    def counts(self) -> Counter:
        return Counter(self.strategy.recorder.counts)

    def run(self, state: RunProgress, until: int | None = None) -> RunProgress:
        """Train from a state until a step, or to the end, with a layout and passes as a new process has them."""

        def keep(state, log):
            self.losses.append(float(log.passes.loss_sum))
            state.stop = state.step == until

        self.loader.layout = filled(replace(self.loader.layout, buckets=()))
        train(self.strategy, self.loader, self.plan, self.loss, self.config, state, keep)
        return replace(state, stop=False)

    def passes(self, state: RunProgress) -> ForwardBackward:
        """Return forward and backward, as the loop makes them."""
        self.loader.layout = filled(replace(self.loader.layout, buckets=()))
        return ForwardBackward(
            self.strategy, self.loader, self.plan, self.steps, self.loss, self.config, state
        )


def assert_same_bits(found: Training, expected: Training) -> None:
    assert found.losses == expected.losses
    weights = found.strategy.full_state.weights()
    for name, value in expected.strategy.full_state.weights().items():
        assert torch.equal(weights[name], value), name


@pytest.mark.parametrize("accumulation", [1, 3])
def test_every_pass_of_the_training_was_recorded_before_the_first_step(rows, accumulation):
    training = Training(rows, replace(SETTINGS, accumulation_steps=accumulation))
    state = RunProgress()
    passes = training.passes(state)
    passes.warm_up()
    before = training.counts
    assert before["recorded"] == len(training.loader.layout.buckets)
    assert not any(p.grad.any() for p in training.strategy.module.parameters())
    for step in range(training.steps):
        passes(training.plan.batch(step))
        training.strategy.step(0.0)
        state.step += 1
    replayed = training.counts - before
    assert replayed == Counter(replayed=accumulation * training.steps), "no eager pass, and nothing recorded"


def test_fewer_passes_are_recorded_than_with_rounded_sizes(rows, monkeypatch):
    planned = Training(rows)
    planned.run(RunProgress())
    monkeypatch.setattr(buckets, "MOST", 0)
    rounded = Training(rows)
    rounded.run(RunProgress())
    assert not rounded.loader.layout.buckets
    assert 0 < planned.counts["recorded"] < rounded.counts["recorded"]
    assert rounded.losses == pytest.approx(planned.losses, rel=1e-5)


def test_the_warm_up_takes_no_random_numbers(rows):
    training = Training(rows, dropout=0.3)
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    passes = training.passes(RunProgress())
    passes.warm_up()
    assert training.counts["replayed"] > 0
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == states[1:]


def test_the_first_step_has_the_same_dropout_masks_as_without_a_warm_up(rows):
    losses = []
    for with_warm_up in (True, False):
        training = Training(rows, dropout=0.3)
        passes = training.passes(RunProgress())
        if with_warm_up:
            passes.warm_up()
        else:
            # Masks are drawn for all tokens, also those of padding
            passes.shapes.choose()
        results = passes(training.plan.batch(0))
        gradients = [parameter.grad.clone() for parameter in training.strategy.module.parameters()]
        losses.append([results.loss_sum, *gradients])
        assert training.counts["recorded"] == (len(training.loader.layout.buckets) if with_warm_up else 0)
    assert all(torch.equal(warm, cold) for warm, cold in zip(*losses, strict=True))


@pytest.mark.parametrize("stop", [1, 7])
def test_a_run_that_was_stopped_and_resumed_has_the_same_bits(rows, stop):
    whole, parts = Training(rows, dropout=0.3), Training(rows, dropout=0.3)
    whole.run(RunProgress())
    state = parts.run(RunProgress(), until=stop)
    assert state.step == stop
    first = parts.loader.layout.buckets
    parts.run(state)
    assert parts.loader.layout.buckets == first == whole.loader.layout.buckets
    assert_same_bits(parts, whole)


class FailsLater(Again):
    """Records the first shape, and then fails."""

    error = RuntimeError("operation not permitted when stream is capturing\nmore")

    def record(self, work):
        if self.counts["recorded"]:
            raise self.error
        return super().record(work)


def test_a_shape_that_cannot_be_recorded_ends_recording_and_planning(rows, monkeypatch, caplog):
    monkeypatch.setattr(Recording, "kind", FailsLater)
    found = run(rows, SETTINGS, Recording, filled)
    (warning,) = [record.getMessage() for record in caplog.records if "CUDA graphs" in record.getMessage()]
    assert warning.endswith("may be slower: operation not permitted when stream is capturing")
    counts = found[3].recorder.counts
    assert counts["recorded"] == 1
    assert not found[3].keep_gradients
    assert_same_job(found, run(rows, SETTINGS))
    training = Training(rows)
    training.run(RunProgress())
    assert not training.loader.layout.buckets, "passes that are not recorded need less padding"


class RunsOutLater(FailsLater):
    """Memory runs out at the second shape, unless its batches have few rows."""

    def record(self, work):
        batch = next(value for value in work.args if hasattr(value, "num_rows"))
        if batch.num_rows > 3 and self.counts["recorded"]:
            self.counts["out of memory"] += 1
            raise torch.OutOfMemoryError("out of memory")
        return Again.record(self, work)


def test_memory_that_runs_out_at_a_later_shape_makes_micro_batches_smaller(rows, monkeypatch, caplog):
    monkeypatch.setattr(Recording, "kind", RunsOutLater)
    config = replace(SETTINGS, max_steps=5)
    training, state = Training(rows, config), RunProgress()
    training.run(state)
    assert training.counts["out of memory"] > 0
    assert state.micro_batch_size <= 5
    assert max(bucket.rows for bucket in training.loader.layout.buckets) <= state.micro_batch_size
    assert "not recorded as CUDA graphs" not in caplog.text
    assert_same_job(run(rows, config, Recording, filled), run(rows, config))


class RunsOut(Training):
    """Memory runs out once, in the fourth step."""

    def run(self, state: RunProgress, until: int | None = None) -> RunProgress:
        load = self.loader.load

        def runs_out_once(positions, device, draw=-1):
            if draw == 3 and state.micro_batch_size is None:
                raise torch.OutOfMemoryError("out of memory")
            return load(positions, device, draw)

        self.loader.load = runs_out_once
        result = super().run(state, until)
        self.loader.load = load
        return result


def test_memory_that_runs_out_in_a_step_plans_shapes_that_a_resumed_run_has_too(rows):
    """After it, micro-batches are smaller; a run that is resumed later knows their size, and must compute the
    same."""
    whole, parts = RunsOut(rows, dropout=0.3), RunsOut(rows, dropout=0.3)
    whole.run(RunProgress())
    state = parts.run(RunProgress(), until=6)
    parts.run(state)
    assert state.micro_batch_size == 5
    assert {bucket.rows for bucket in parts.loader.layout.buckets} <= {4, 5}
    assert_same_bits(parts, whole)


def test_steps_beyond_those_that_are_planned_are_rounded_where_they_do_not_fit(rows, monkeypatch):
    monkeypatch.setattr(planned_shapes, "MAX_STEPS", 1)
    training = Training(rows)
    training.run(RunProgress())
    assert len(training.loader.layout.buckets) == 1
    assert training.counts["recorded"] > 1
    expected = run(rows, SETTINGS)
    assert_same_job(run(rows, SETTINGS, Recording, filled), expected)


@pytest.mark.gpu
def test_graphs_of_planned_shapes_are_recorded_before_the_first_step_on_a_gpu(rows, caplog):
    training = Training(
        rows, replace(SETTINGS, device="cuda", precision="bf16"), dropout=0.3, strategy_class=Single
    )
    state, before = RunProgress(), torch.cuda.get_rng_state(training.strategy.device)
    passes = training.passes(state)
    passes.warm_up()
    recordings = dict(passes.run_pass.recordings)
    assert len(recordings) == len(training.loader.layout.buckets) > 0
    assert torch.equal(torch.cuda.get_rng_state(training.strategy.device), before)
    for step in range(training.steps):
        passes(training.plan.batch(step))
        training.strategy.step(0.0)
        state.step += 1
    assert passes.run_pass.recordings == recordings
    assert "not recorded as CUDA graphs" not in caplog.text
