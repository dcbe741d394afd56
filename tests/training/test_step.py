"""Steps that wait for no device, or are repeated where memory runs out; evaluations; infinite numbers."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.checkpoints.progress import RunProgress
from app.config.schema import Config, TrainConfig
from app.errors import TrainingError
from app.model import attention
from app.modes.mode import Single
from app.run import main
from app.training import evaluation
from app.training.evaluation import evaluate_rows, tokens_of_batch
from app.training.step import Step
from app.training.step_results import add_losses
from tests.ranks import Disturbance, run, settings
from tests.tiny import CountCasts
from tests.training.tiny_training import SETTINGS, Training, step_result

NAN = float("nan")
INF = float("inf")
VARLEN = pytest.mark.parametrize("varlen", [False, True], ids=["grouped", "varlen"])


@pytest.fixture
def training() -> Training:
    return Training(dropout=0.3)


@pytest.mark.parametrize("most_tokens", [1, 2, 3])
def test_a_limit_below_one_row_means_one_row_a_micro_batch(most_tokens):
    config = replace(SETTINGS, micro_batch_tokens=most_tokens)
    training = Training(config, dropout=0.3)
    step = Step(training.mode, training.loader, training.loss)
    [micro_batches] = step.split_batch(training.plan.batch(0), None)
    assert [len(rows) for rows in micro_batches] == [1] * 10


class OnMeta(Single):
    """One process whose device has no values to wait for: whoever asks for one gets an error."""

    def __enter__(self):
        super().__enter__()
        self.device = torch.device("meta")
        return self


@VARLEN
def test_a_step_never_waits_for_the_device(varlen, monkeypatch):
    # torch's shapes-only backward of the fp32 kernel has one argument too few (2.13)
    monkeypatch.setattr(
        attention,
        "attend_varlen",
        lambda query, key, value, *options: query + key[: len(query)] * value.sum(0),
    )
    config = replace(SETTINGS, accumulation_steps=2, max_steps=3)
    training = Training(config, OnMeta, pairs=True, varlen=varlen).run()
    assert [step.passes.loss_sum.device.type for step in training.steps] == ["meta"] * 3
    with pytest.raises(RuntimeError, match="meta"):
        float(training.steps[0].passes.loss_sum)


@pytest.mark.gpu
@VARLEN
def test_no_step_waits_for_the_gpu(varlen):
    config = replace(SETTINGS, device="cuda", precision="bf16", epochs=8)
    try:
        Training(config, pairs=True, varlen=varlen).run(
            after_step=lambda state, _: state.step == 20 and torch.cuda.set_sync_debug_mode("error")
        )
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Small(Single):
    """A device whose memory is enough for the gradients of a few rows."""

    max_rows = 3

    def forward(self, inputs):
        rows = len(inputs["first_tokens"])
        if self.module.training and rows > self.max_rows:
            raise torch.OutOfMemoryError(f"out of memory for {rows} rows")
        return super().forward(inputs)


def test_micro_batches_get_smaller_until_they_fit_and_stay_so(caplog):
    """The step that is repeated has the bits of one that had small micro-batches from the start."""
    caplog.set_level("INFO")
    small = Training(SETTINGS, Small, pairs=True, dropout=0.3).run(until=3)
    messages = [message for message in caplog.messages if "memory ran out" in message]
    assert ["with micro-batches of 10 rows" in messages[0], "of 5 rows" in messages[1]] == [True, True]
    assert len(messages) == 2
    assert small.state.micro_batch_size == 3
    # Batches of 10 rows, of at most 3
    config = replace(SETTINGS, accumulation_steps=4)
    small.assert_same_bits(Training(config, pairs=True, dropout=0.3).run(until=3))


class NoMemory(Small):
    max_rows = 0


class SmallForAdamW(Single):
    """Memory runs out when the weights are changed, some of which may then have changed already."""

    def step(self, max_norm):
        raise torch.OutOfMemoryError("out of memory in the update")


class Broken(Single):
    def forward(self, inputs):
        raise RuntimeError("shapes do not fit")


class Launched(Small):
    launcher = "torchrun"


@pytest.mark.parametrize(
    ("mode_class", "error", "message"),
    [
        (NoMemory, TrainingError, "step 1 with micro-batches of one row; lower data.max_length"),
        (SmallForAdamW, torch.OutOfMemoryError, "in the update"),
        (Broken, RuntimeError, "shapes do not fit"),
        (Launched, TrainingError, "--train.accumulation_steps N, with a larger number"),
    ],
)
def test_a_step_that_cannot_be_repeated_is_an_error(mode_class, error, message):
    training = Training(SETTINGS, mode_class)
    with pytest.raises(error, match=message):
        training.run()
    assert mode_class is not SmallForAdamW or training.state.micro_batch_size is None


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("pairs", [False, True], ids=["singles", "pairs"])
def test_evaluate_returns_the_logits_of_each_row_in_order(pairs, packed):
    training = Training(pairs=pairs, packed=packed, dropout=0.3)
    model = training.mode.module
    loader = training.loader
    device = training.mode.device
    logits_of_rows = []
    model.eval()
    with torch.inference_mode():
        for position in range(len(loader)):
            batch = loader.load(np.array([position]), device)
            logits_of_rows.append(model(**batch.inputs))
    one_by_one = torch.cat(logits_of_rows).numpy()
    for batch_size in (1, 5, None):
        done: list[int] = []
        logits = evaluate_rows(training.mode, loader, batch_size, done.append)
        assert model.training
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, one_by_one, atol=1e-5)
        assert sum(done) == len(loader)


@pytest.mark.parametrize(
    "gathered",
    [
        lambda rows: rows[1:],
        lambda rows: torch.cat([rows, rows[:2]]),
        lambda rows: torch.cat([rows[1:], rows[1:2]]),
        lambda rows: rows[:0],
        lambda rows: torch.cat([rows, rows[:1] * 0 + 48]),
    ],
)
def test_rows_that_are_not_evaluated_once_are_an_error(training, gathered):
    training.mode.group.gather = gathered
    with pytest.raises(RuntimeError, match="every row of train must be evaluated exactly once; of 48 rows "):
        evaluate_rows(training.mode, training.loader, 16)


@pytest.mark.parametrize("num_shards", [1, 3])
def test_an_evaluation_has_batches_of_tokens_where_kernels_must_be_launched(
    num_shards, training, monkeypatch
):
    """All ranks have rows, and the limit of a micro-batch holds, too."""
    loader = training.loader
    expected = evaluate_rows(training.mode, loader, 16)
    monkeypatch.setattr(evaluation, "has_memory", lambda device: True)
    done: list[int] = []
    logits = evaluate_rows(training.mode, loader, on_batch=done.append)
    assert len(done) == 1
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    num_tokens = int(loader.lengths().sum())
    assert tokens_of_batch(loader, num_shards, None) == -(-num_tokens // num_shards)
    assert tokens_of_batch(loader, num_shards, 20) == 20
    monkeypatch.setattr(evaluation, "BATCH_TOKENS", 100)
    evaluate_rows(training.mode, loader, on_batch=done.append)
    assert len(done) - 1 >= num_tokens / 100


def test_an_evaluation_casts_each_weight_once():
    training = Training(replace(SETTINGS, precision="bf16"))
    counts = []
    for batch_size in (48, 4):
        with CountCasts(training.mode.module) as casts:
            evaluate_rows(training.mode, training.loader, batch_size)
        counts.append(casts.num_casts)
    assert counts[0] > 0
    assert counts[1] == counts[0]


def named(loader, positions: list[int]) -> str:
    rows = sorted(loader.split.rows[positions])
    places = ", ".join(f"{row} (line {loader.split.table.row(row).line})" for row in rows)
    return f"{places} of {loader.split.table.source}"


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_rows_whose_logits_are_not_finite_are_named(training, value):
    loader = training.loader
    first = f"found 2 of 48 rows without: {named(loader, [1, 3])}"
    for wrong, error in (({1, 3}, re.escape(first)), (set(range(48)), r".*\) and 38 more of ")):

        def spoil(outputs, batch, wrong=wrong):
            outputs = outputs.clone()
            outputs[torch.isin(batch.positions, torch.tensor(sorted(wrong))), 2] = value
            return outputs

        with pytest.raises(TrainingError, match=f"^evaluation on train needs finite logits, {error}"):
            evaluate_rows(training.mode, loader, 16, row_results=spoil)


def add(training: Training, *steps) -> RunProgress:
    """Add up the results of steps under fp16."""
    progress = RunProgress()
    with Single(Config(train=TrainConfig(precision="fp16", device="cpu"))) as mode:
        add_losses(mode, training.loader, list(steps), progress)
    return progress


def test_losses_add_up_and_an_overflow_under_fp16_is_no_error(training):
    overflow = step_result(2, [True], 1.0, grad_norm=INF, skipped=True)
    progress = add(training, step_result(1, [True] * 2, 5.0), overflow)
    assert progress.mean_loss(progress.logged) == 2.0
    assert (progress.logged, progress.evaluated) == ([0.0, 0], [6.0, 3])


ROWS = "rows whose logits are not finite"
ALL = "all logits are finite; rows of the batch"


@pytest.mark.parametrize(
    ("finite", "loss_sum", "grad_norm", "skipped", "which_rows", "positions"),
    [
        ([True, False, True, False], INF, NAN, False, ROWS, [4, 6]),
        ([True, True], 1.0, INF, False, ALL, [3, 4]),
        ([False], NAN, NAN, True, ROWS, [3]),
    ],
)
def test_a_step_that_is_not_finite_names_its_rows(
    training, finite, loss_sum, grad_norm, skipped, which_rows, positions
):
    figures = f"the loss is {loss_sum / len(finite)} and the gradient norm {grad_norm}"
    wanted = f"step 17: {figures}; {which_rows}: {named(training.loader, positions)}"
    with pytest.raises(TrainingError, match=f"^{re.escape(wanted)}"):
        add(
            training,
            step_result(16, [True]),
            step_result(17, finite, loss_sum, grad_norm, skipped, first_position=3),
        )


@pytest.mark.parametrize("early", [{}, {"train__early_stopping": 1, "train__eval_every": 1}])
def test_a_training_without_an_update_has_no_report(early, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Single, "step", lambda self, max_norm: (torch.zeros(()), True))
    for _ in range(2):
        assert main("single", "", settings(data, tmp_path / "run", train__epochs=1, **early)) == 1
        message = capsys.readouterr().err.splitlines()[-1]
        assert re.match(r"error: all \d steps were skipped, .* nothing was trained, and there", message)
        assert not (tmp_path / "run" / "report.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_model_that_is_not_a_number_is_not_the_best(data, tmp_path, world_size):
    """The weights are spoilt in the step before the first evaluation; its own loss is finite."""
    argv = settings(data, tmp_path / "run", train__epochs=2, train__eval_every=2)
    disturbances = [Disturbance(1, "spoil_weights", rank) for rank in range(world_size)]
    mode = "ddp" if world_size > 1 else "single"
    log = tmp_path / "log"
    assert run(mode, world_size, argv, disturbances, log) == [1] * world_size, log.read_text()
    # Two ranks may write on one line
    error = r"error(?: \(rank 1\))?: evaluation on dev needs finite logits, found "
    assert len(re.findall(error, log.read_text())) == world_size, log.read_text()
    assert "best" not in log.read_text().replace("saved as the best", "")
    assert not (tmp_path / "run" / "report.json").exists()
