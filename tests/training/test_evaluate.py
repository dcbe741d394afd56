"""Evaluations and the losses of steps; numbers that are not finite end the run: python -m pytest
tests/training/test_evaluate.py"""

import re

import numpy as np
import pytest
import torch

from app.checkpoints.training_state import RunProgress
from app.config.schema import Config, TrainConfig
from app.errors import TrainingError
from app.modes.torch_modes import Single
from app.run import main
from app.training.step import add_losses, evaluate
from tests.ranks import Disturbance, Run, settings
from tests.tiny import open_tiny
from tests.training.tiny_training import Training, step_result

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def singles(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("singles"), rows_per_label=20)


@pytest.fixture
def training(singles) -> Training:
    return Training(singles, dropout=0.3)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("pairs", [False, True], ids=["singles", "pairs"])
def test_evaluate_returns_the_logits_of_each_row_in_order(pairs, packed, tmp_path):
    training = Training(open_tiny(tmp_path, 20, pairs), packed=packed, dropout=0.3)
    model, loader, device = training.mode.module, training.loader, training.mode.device
    for batch_size in (1, 5, 64):
        done: list[int] = []
        found = evaluate(training.mode, loader, batch_size, done.append)
        batches = [loader.load(np.array([position]), device) for position in range(len(loader))]
        with torch.inference_mode():
            assert not model.training
            one_by_one = [model(**batch.inputs) for batch in batches]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, torch.cat(one_by_one).numpy(), atol=1e-5)
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
        evaluate(training.mode, training.loader, 16)


def named(loader, positions: list[int]) -> str:
    rows = sorted(loader.split.rows[positions])
    return ", ".join(f"{row} (line {loader.split.table.line(row)})" for row in rows)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_rows_whose_logits_are_not_finite_are_named(training, value):
    loader, wrong = training.loader, {1, 3}

    def spoil(outputs, batch):
        outputs = outputs.clone()
        outputs[[position in wrong for position in batch.positions.tolist()], 2] = value
        return outputs

    start = (
        f"evaluation on train needs finite logits, found 2 of 48 rows without: {named(loader, [1, 3])} of "
    )
    with pytest.raises(TrainingError, match=f"^{re.escape(start)}"):
        evaluate(training.mode, loader, 16, row_results=spoil)
    wrong = set(range(48))
    with pytest.raises(TrainingError, match=r"\) and 38 more of "):
        evaluate(training.mode, loader, 16, row_results=spoil)


@pytest.fixture
def add(training):
    """Return a function that adds up the results of steps under fp16; it returns the progress."""
    mode, progress = Single(Config(train=TrainConfig(precision="fp16"))), RunProgress()

    def add_up(*steps) -> RunProgress:
        add_losses(mode, training.loader, list(steps), progress)
        return progress

    return add_up


def test_losses_add_up_and_an_overflow_under_fp16_is_no_error(add):
    add(step_result(1, [True] * 2, 5.0), step_result(2, [True], 1.0, grad_norm=INF, skipped=True))
    progress = add()
    assert progress.mean_loss(progress.logged) == 2.0
    assert (progress.logged, progress.evaluated) == ([0.0, 0], [6.0, 3])


ROWS, ALL = "rows whose logits are not finite: ", "all logits are finite; rows of the batch: "


@pytest.mark.parametrize(
    ("step", "start", "places"),
    [
        (
            step_result(17, [True, False, True, False], INF, np.arange(4) + 3, NAN),
            f"the loss is inf and the gradient norm nan; {ROWS}",
            [4, 6],
        ),
        (
            step_result(17, [True, True], 1.0, None, INF),
            f"the loss is 0.5 and the gradient norm inf; {ALL}",
            [0, 1],
        ),
        (
            step_result(17, [False], NAN, None, NAN, skipped=True),
            f"the loss is nan and the gradient norm nan; {ROWS}",
            [0],
        ),
    ],
)
def test_a_step_that_is_not_finite_names_its_rows(add, training, step, start, places):
    wanted = f"step 17: {start}{named(training.loader, places)} of {training.loader.split.table.source}"
    with pytest.raises(TrainingError, match=f"^{re.escape(wanted)}"):
        add(step_result(16, [True]), step)


@pytest.mark.parametrize("early", [{}, {"train__early_stopping": 1, "train__eval_every": 1}])
def test_a_training_without_an_update_has_no_report(early, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Single, "step", lambda self, max_norm: (torch.zeros(()), True))
    for _ in range(2):
        assert main("single", "", settings(data, tmp_path / "run", train__epochs=1, **early)) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.match(r"error: all \d steps were skipped, .* nothing was trained, and there", said)
        assert not (tmp_path / "run" / "report.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_model_that_is_not_a_number_is_not_the_best(data, tmp_path, world_size):
    """The weights are spoilt in the step before the first evaluation; its own loss is finite."""
    argv = settings(data, tmp_path / "run", train__epochs=2, train__eval_every=2)
    disturbances = [Disturbance(1, "spoil_weights", rank) for rank in range(world_size)]
    run = Run("ddp" if world_size > 1 else "single", world_size, argv, disturbances, tmp_path / "log")
    assert run.join() == [1] * world_size, run.said()
    # Two ranks may write on one line
    error = r"error(?: \(rank 1\))?: evaluation on dev needs finite logits, found "
    assert len(re.findall(error, run.said())) == world_size, run.said()
    assert "best" not in run.said().replace("saved as the best", "")
    assert not (tmp_path / "run" / "report.json").exists()
