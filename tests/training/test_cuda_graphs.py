"""Recorded passes, attention over rows of any length, and steps that never wait: python -m pytest
tests/training/test_cuda_graphs.py

Without a GPU, a recorder that does the work again stands for the graph: it too reads and writes the memory of
the recording.
"""

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from app.batching.buckets import FILL_TO, ROUND_LONGEST_TO, filled_tokens
from app.batching.collate import Layout, collate
from app.batching.plan import BatchPlan
from app.config.schema import Config, DDPConfig, TrainConfig
from app.errors import InputError
from app.model import attention
from app.model import varlen as varlen_attention
from app.outcomes.losses import CrossEntropy
from app.run.assembly import choose_recorded, choose_varlen
from app.strategies.ddp import DDP
from app.strategies.single import Single
from app.training.evaluate import evaluate
from app.training.loop import train
from app.training.optimizer import build_optimizer
from app.training.progress import RunProgress
from app.training.recorded_passes import RecordedPasses
from tests.tiny import loaders_of, open_tiny, tiny_model, token_rows

SETTINGS = TrainConfig(
    epochs=4,
    batch_size=10,
    learning_rate=1e-3,
    device="cpu",
    threads=1,
    label_smoothing=0.1,
    cuda_graphs="passes",
)
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])
TOLERANCES = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 5e-3}


class Again:
    """Does recorded work again, and counts."""

    def __init__(self) -> None:
        self.counts = Counter()

    def run(self, work):
        self.counts["run"] += 1
        return work()

    def record(self, work):
        self.counts["recorded"] += 1

        def replay():
            self.counts["replayed"] += 1
            return work()

        return replay


class Recording(Single):
    """One process whose passes are recorded, here too."""

    kind = Again

    @property
    def recorder_class(self):
        return self.new_recorder

    def new_recorder(self, device):
        self.recorder = self.kind()
        return self.recorder


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20, pairs=True)


def run(
    rows,
    config: TrainConfig,
    strategy_class=Single,
    layout=lambda layout: layout,
    dropout=0.0,
    reads=True,
    after_step=lambda step: None,
):
    """Train with packed batches in a layout; returns weights, losses, logits of train, and the strategy.

    Unless it `reads`, only losses, which are still on the device.
    """
    dataset, tokenizer, stores = rows
    losses = []
    with strategy_class(Config(train=config)) as strategy:
        model = tiny_model(vocab_size=len(tokenizer), dropout=dropout).train()
        loader = loaders_of(dataset, stores, model, True)["train"]
        loader.layout = layout(loader.layout)
        strategy.setup(model, lambda module: build_optimizer(module, config, num_layers=2))
        row_loss = CrossEntropy(WEIGHTS.to(strategy.device), config.label_smoothing)
        plan = BatchPlan(len(loader), config.batch_size, config.seed)

        def keep(state: RunProgress, log) -> None:
            losses.append(log.passes.loss_sum.clone())
            after_step(state.step)

        train(strategy, loader, plan, row_loss, config, RunProgress(), keep)
        if not reads:
            return losses
        found = evaluate(strategy, loader, 16)
        return strategy.full_state.weights(), [float(loss) for loss in losses], found, strategy


def varlen(layout: Layout) -> Layout:
    return replace(layout, varlen=True)


def filled(layout: Layout) -> Layout:
    return replace(layout, varlen=True, filled=True)


def assert_same_job(found, expected, tolerance: float = 1e-5) -> None:
    assert found[1] == pytest.approx(expected[1], rel=tolerance)
    for name, value in expected[0].items():
        # Its exact gradient is 0, which AdamW blows up
        if "key.bias" in name:
            continue
        torch.testing.assert_close(found[0][name], value, atol=tolerance, rtol=0, msg=name)
    np.testing.assert_allclose(found[2], expected[2], atol=100 * tolerance)


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_recorded_passes_are_the_same_job(rows, precision, accumulation):
    config = replace(SETTINGS, precision=precision, accumulation_steps=accumulation)
    expected = run(rows, config)
    found = run(rows, config, Recording, filled)
    counts = found[3].recorder.counts
    assert counts["replayed"] > 10 * accumulation
    assert 0 < counts["recorded"] < counts["replayed"] / 2, (
        "shapes must come again, or recording is for nothing"
    )
    assert_same_job(found, expected, TOLERANCES[precision])
    assert found[3].keep_gradients
    assert all(not p.grad.any() for p in found[3].module.parameters()), "gradients are zero behind a step"


def test_dropout_of_recorded_passes_is_a_function_of_the_step(rows):
    first, again = (run(rows, SETTINGS, Recording, filled, dropout=0.3) for _ in range(2))
    assert first[1] == again[1]


class Watching(Again):
    """Does the work while recording, as a graph does, and looks whether autocast would keep casts."""

    def record(self, work):
        keeping = []
        with patch.object(torch.nn.functional, "linear", watched(torch.nn.functional.linear, keeping)):
            work()
        self.kept = any(keeping)
        self.counts["looks"] += len(keeping)
        return super().record(work)


def watched(function, keeping: list):
    def linear(*given):
        keeping.append(torch.is_autocast_cache_enabled())
        return function(*given)

    return linear


def test_a_recording_casts_weights_itself(rows, monkeypatch):
    """A cast made outside of it would be of the weights of that moment, and its memory free for others."""
    monkeypatch.setattr(Recording, "kind", Watching)
    config = replace(SETTINGS, precision="bf16", max_steps=1)
    recorder = run(rows, config, Recording, filled)[3].recorder
    assert recorder.counts["looks"] > 10
    assert not recorder.kept
    assert torch.is_autocast_cache_enabled()


class Refusing(Again):
    def record(self, work):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")


class Stale(Again):
    """Records what a graph does that has lost its inputs: the same figures for ever, and no gradients."""

    def record(self, work):
        figures = work()
        return lambda: figures


class Wrong(Again):
    """Adds the gradients twice."""

    def record(self, work):
        return lambda: (work(), work())[1]


class Frozen(Again):
    """Draws the dropout masks of the recording for ever."""

    def record(self, work):
        state = torch.get_rng_state()

        def replay():
            torch.set_rng_state(state)
            return work()

        return replay


@pytest.mark.parametrize("cuda_graphs", ["passes", None])
def test_a_recording_with_frozen_dropout_masks_is_given_up(rows, caplog, monkeypatch, cuda_graphs):
    config = replace(SETTINGS, max_steps=1, cuda_graphs=cuda_graphs)
    run(rows, config, Recording, filled, dropout=0.3, reads=False)
    assert "CUDA graphs" not in caplog.text
    monkeypatch.setattr(Recording, "kind", Frozen)
    run(rows, config, Recording, filled, dropout=0.3, reads=False)
    assert (
        "training is not recorded as CUDA graphs and may be slower: a replayed pass gave other results"
        in caplog.text
    )


class Small(Again):
    """A device whose memory is enough for a few rows."""

    most_rows = 3

    def run(self, work):
        return self.within(work, super().run)

    def record(self, work):
        return self.within(work, super().record)

    def within(self, work, do):
        batch = next(value for value in work.args if hasattr(value, "num_rows"))
        if batch.num_rows > self.most_rows:
            self.counts["out of memory"] += 1
            raise torch.OutOfMemoryError("out of memory in the proof")
        return do(work)


class SmallForRecordings(Small):
    """Only recordings do not fit."""

    most_rows = 0

    def run(self, work):
        return Again.run(self, work)


@pytest.mark.parametrize(("cuda_graphs", "failures"), [("passes", 2), (None, 3)])
def test_memory_that_runs_out_in_the_proof_makes_micro_batches_smaller(
    rows, monkeypatch, caplog, cuda_graphs, failures
):
    monkeypatch.setattr(Recording, "kind", Small)
    config = replace(SETTINGS, max_steps=5, cuda_graphs=cuda_graphs)
    found = run(rows, config, Recording, filled)
    # 10 rows (whole steps first, where these are recorded), 5 rows; 3 are enough
    assert found[3].recorder.counts["out of memory"] == failures
    assert found[3].recorder.counts["replayed"] > 5
    assert found[3].keep_gradients
    assert "CUDA graphs" not in caplog.text
    assert_same_job(found, run(rows, config))


def test_passes_run_unrecorded_where_not_even_one_row_can_be_recorded(rows, monkeypatch, caplog):
    monkeypatch.setattr(Recording, "kind", SmallForRecordings)
    config = replace(SETTINGS, max_steps=5)
    found = run(rows, config, Recording, filled)
    assert "not recorded as CUDA graphs and may be slower: out of memory in the proof" in caplog.text
    assert found[3].recorder.counts["replayed"] == 0
    assert found[3].recorder.counts["run"] == 5, (
        "one for each size that was tried, and the step has its 10 rows again"
    )
    assert_same_job(found, run(rows, config))


class Overflowing(Single):
    """A loss scale so high that the gradients of the first steps overflow."""

    def new_scaler(self):
        return torch.amp.GradScaler("cpu", init_scale=2.0**50)


class RecordingOverflowing(Overflowing, Recording):
    """The same with recorded passes."""


def test_steps_that_overflow_under_fp16_are_skipped_alike_with_recorded_passes(rows):
    config = replace(SETTINGS, precision="fp16", max_steps=10)
    expected, found = run(rows, config, Overflowing), run(rows, config, RecordingOverflowing, filled)
    assert found[3].recorder.counts["replayed"] > 3
    assert found[3].scaler.get_scale() == expected[3].scaler.get_scale() < 2.0**45
    assert_same_job(found, expected, TOLERANCES["fp16"])


@pytest.mark.parametrize(
    ("recorder_class", "reason"),
    [(Refusing, "operation not permitted"), (Stale, "other results"), (Wrong, "other results")],
)
def test_a_recording_that_fails_or_differs_is_given_up(rows, caplog, monkeypatch, recorder_class, reason):
    monkeypatch.setattr(Recording, "kind", recorder_class)
    found = run(rows, SETTINGS, Recording, filled)
    (warning,) = [record.getMessage() for record in caplog.records if "CUDA graphs" in record.getMessage()]
    assert reason in warning
    assert "\n" not in warning
    assert not found[3].keep_gradients
    assert_same_job(found, run(rows, SETTINGS))


def test_gradients_that_move_are_noticed():
    model = tiny_model().train()
    strategy = Recording(Config(train=SETTINGS))
    strategy.setup(model, lambda module: build_optimizer(module, SETTINGS, num_layers=2))
    passes = RecordedPasses(lambda batch, num_rows: None, strategy, Again())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    passes.check_gradients()
    strategy.zero_grad()
    passes.check_gradients()
    next(model.parameters()).grad = None
    with pytest.raises(AssertionError, match="moved"):
        passes.check_gradients()


def test_filled_batches_have_few_numbers_of_tokens():
    found = [filled_tokens(tokens) for tokens in range(1, 5000)]
    assert all(tokens < there <= tokens + max(FILL_TO, tokens // 8) for tokens, there in enumerate(found, 1))
    assert len({there for there in found if 512 < there <= 1024}) == 8
    rows = token_rows([5, 9, 3])
    starts = [2, 9, 1]
    batch = collate(rows, starts, Layout(packed=True, varlen=True, filled=True, pad_id=4, first_position=2))
    plain = collate(rows, starts, Layout(packed=True, varlen=True, pad_id=4, first_position=2))
    assert batch["input_ids"].shape == (1, 32)
    assert batch["row_offsets"].tolist() == [0, 5, 14, 17, 32]
    assert plain["row_offsets"].tolist() == [0, 5, 14, 17]
    assert (batch["longest"], plain["longest"]) == (ROUND_LONGEST_TO, 9)
    assert batch["first_tokens"].tolist() == [0, 5, 14, 17]
    for name in ("input_ids", "position_ids", "token_type_ids"):
        assert torch.equal(batch[name][:, :17], plain[name]), name
    assert set(batch["input_ids"][0, 17:].tolist()) == {4}
    assert set(batch["position_ids"][0, 17:].tolist()) == {2}, (
        "the filling may be longer than the model's positions"
    )
    assert not batch["token_type_ids"][0, 17:].any()


def test_what_is_asked_for_must_be_possible():
    model = tiny_model()
    cpu = torch.device("cpu")
    assert not choose_varlen("auto", model, True, cpu), "groups are faster on the CPU"
    assert choose_varlen("varlen", model, True, cpu)
    assert not choose_varlen("grouped", model, True, cpu)
    with pytest.raises(InputError, match="train.attention varlen needs packed batches"):
        choose_varlen("varlen", model, False, cpu)
    layout = model.layout(True, varlen=True)
    recording, single, ddp = (kind(Config(train=SETTINGS)) for kind in (Recording, Single, DDP))
    assert choose_recorded(None, layout, recording)
    assert choose_recorded(True, layout, recording)
    assert not choose_recorded(False, layout, recording)
    assert not choose_recorded(None, model.layout(True), recording)
    assert choose_recorded("passes", layout, recording)
    for strategy in (single, ddp):
        assert not choose_recorded(None, layout, strategy)
        assert not choose_recorded("passes", layout, strategy)
        with pytest.raises(InputError, match="train.cuda_graphs true needs run_single.py"):
            choose_recorded(True, layout, strategy)
    unwrapped = DDP(Config(train=SETTINGS, ddp=DDPConfig(wrapper=False)))
    for strategy, is_recorded in ((single, True), (ddp, False), (unwrapped, True)):
        strategy.device = torch.device("cuda")
        assert choose_recorded(None, layout, strategy) == strategy.can_cast_jointly == is_recorded


@pytest.mark.parametrize("longest_query", [7, 1], ids=["all tokens", "first tokens"])
def test_varlen_kernels_take_what_they_are_given(longest_query):
    """No values, only shapes: torch checks the arguments of its CUDA kernels on the meta device."""
    offsets = torch.empty(4, dtype=torch.int32, device="meta")
    queries = 16 if longest_query == 7 else 3
    states = [
        torch.empty(tokens, 2, 64, device="meta", dtype=torch.bfloat16, requires_grad=True)
        for tokens in (queries, 16, 16)
    ]
    found = varlen_attention.attend_varlen(*states, offsets, offsets, longest_query, 7, 0.1, 0.125)
    assert (found.shape, found.dtype) == (states[0].shape, torch.bfloat16)
    gradients = torch.autograd.grad(found.sum(), states)
    assert [gradient.shape for gradient in gradients] == [part.shape for part in states]
    with torch.no_grad():
        exact = varlen_attention.attend_varlen(
            *(part.float() for part in states), offsets, offsets, longest_query, 7, 0.1, 0.125
        )
    assert exact.shape == states[0].shape


def test_varlen_kernels_are_tried_before_they_are_used(monkeypatch, caplog):
    device = torch.device("cpu")
    for dtype in varlen_attention.TOLERANCES:
        assert varlen_attention.varlen_agrees(device, 8, dtype)
    right = varlen_attention.attend_varlen
    monkeypatch.setattr(varlen_attention, "attend_varlen", lambda query, *rest: right(query * 1.1, *rest))
    assert not varlen_attention.varlen_agrees(device, 8, torch.float32)
    has_kernels, cuda = varlen_attention.has_varlen_kernels.__wrapped__, torch.device("cuda")
    assert not has_kernels(device, 64), "the CPU has none"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(varlen_attention, "varlen_agrees", lambda device, head_size, dtype: True)
    assert has_kernels(cuda, 64)
    assert not has_kernels(cuda, 12)
    assert not caplog.records
    monkeypatch.setattr(
        varlen_attention, "varlen_agrees", lambda device, head_size, dtype: dtype != torch.bfloat16
    )
    assert not has_kernels(cuda, 64)
    assert "variable-length attention is not used on cuda: wrong results for torch.bfloat16" in caplog.text
    monkeypatch.setattr(varlen_attention, "varlen_agrees", fails)
    assert not has_kernels(cuda, 64)
    assert "variable-length attention is not used on cuda: no kernel image" in caplog.text
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not has_kernels(cuda, 64)


def fails(*given):
    raise RuntimeError("no kernel image is available\nmore")


class OnMeta(Single):
    """One process whose device has no values to wait for: whoever asks for one gets an error."""

    def __enter__(self):
        super().__enter__()
        self.device = torch.device("meta")
        return self


@pytest.mark.parametrize("layout", [lambda layout: layout, varlen], ids=["grouped", "varlen"])
def test_a_step_never_waits_for_the_device(rows, layout, monkeypatch):
    # torch's shapes-only backward of the fp32 kernel has one argument too few (2.13), so groups do its work
    # here
    monkeypatch.setattr(
        attention,
        "attend_varlen",
        lambda query, key, value, starts, *rest: query + key[: len(query)] * value.sum(0),
    )
    config = replace(SETTINGS, accumulation_steps=2, max_steps=3)
    losses = run(rows, config, OnMeta, layout, reads=False)
    assert [loss.device.type for loss in losses] == ["meta"] * 3
    with pytest.raises(RuntimeError, match="meta"):
        float(losses[0])


GPU = {"fp32": (torch.float32, 1e-4), "bf16": (torch.bfloat16, 2e-2)}


@pytest.mark.gpu
@pytest.mark.parametrize("precision", GPU)
def test_varlen_kernels_do_what_groups_do(precision):
    dtype, tolerance = GPU[precision]
    rows = token_rows([5, 9, 3, 20, 2, 7, 32])
    found = {}
    for name in ("grouped", "varlen"):
        model = tiny_model().train().to("cuda")
        inputs = collate(rows, None, model.layout(True, varlen=name == "varlen"))
        inputs = {key: value.cuda() if torch.is_tensor(value) else value for key, value in inputs.items()}
        with torch.autocast("cuda", dtype, enabled=precision != "fp32"):
            logits = model(**inputs).float()
        logits.square().sum().backward()
        found[name] = {"logits": logits} | {key: value.grad for key, value in model.named_parameters()}
    for name, value in found["grouped"].items():
        scale = float(value.abs().max()) or 1.0
        torch.testing.assert_close(found["varlen"][name], value, atol=tolerance * scale, rtol=0, msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize(("accumulation", "cuda_graphs"), [(1, None), (1, "passes"), (3, None)])
@pytest.mark.parametrize("precision", GPU)
def test_graphs_are_the_same_job_on_a_gpu(rows, precision, accumulation, cuda_graphs, caplog):
    config = replace(SETTINGS, device="cuda", precision=precision, accumulation_steps=accumulation)
    expected = run(rows, config)
    found = run(rows, replace(config, cuda_graphs=cuda_graphs), Single, filled)
    assert not caplog.records
    assert found[3].keep_gradients == ((accumulation, cuda_graphs) != (1, None)), "whole steps free them"
    assert_same_job(found, expected, 10 * GPU[precision][1])


@pytest.mark.gpu
@pytest.mark.parametrize("cuda_graphs", [None, "passes"])
def test_graphs_draw_the_masks_of_the_step_on_a_gpu(rows, caplog, cuda_graphs):
    config = replace(SETTINGS, device="cuda", cuda_graphs=cuda_graphs)
    first, again = (run(rows, config, Single, filled, dropout=0.3) for _ in range(2))
    assert not caplog.records
    assert first[1] == pytest.approx(again[1], rel=1e-4)
    assert len(set(first[1])) == len(first[1])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("layout", "cuda_graphs"),
    [(lambda layout: layout, None), (varlen, None), (filled, "passes"), (filled, None)],
    ids=["grouped", "varlen", "recorded passes", "recorded steps"],
)
def test_no_step_waits_for_the_gpu(rows, layout, cuda_graphs):
    config = replace(SETTINGS, device="cuda", precision="bf16", epochs=8, cuda_graphs=cuda_graphs)
    torch.cuda.set_sync_debug_mode("default")
    try:
        run(
            rows, config, Single, layout, reads=False, after_step=lambda step: step == 20 and forbid_waiting()
        )
    finally:
        torch.cuda.set_sync_debug_mode("default")


def forbid_waiting() -> None:
    torch.cuda.set_sync_debug_mode("error")
