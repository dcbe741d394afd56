"""Losses of steps add up; one that is not finite ends the run: python -m pytest
tests/training/test_step_losses.py"""

import re

import numpy as np
import pytest

from app.checkpoints.training_state import RunProgress
from app.config.schema import Config, TrainConfig
from app.errors import TrainingError
from app.modes.single import Single
from app.run import main
from app.training.step_losses import MAX_SKIPPED, Losses, check_finite
from tests.ranks import Disturbance, Run, settings
from tests.tiny import loaders_of, open_tiny, tiny_model
from tests.training.tiny_training import step_result

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    dataset, _, stores = open_tiny(tmp_path_factory.mktemp("finite"))
    return loaders_of(dataset, stores, tiny_model(), packed=True)["train"]


@pytest.fixture
def losses(loader) -> Losses:
    return Losses(Single(Config(train=TrainConfig(precision="fp16"))), loader, RunProgress())


def test_losses_add_up_and_an_overflow_under_fp16_is_no_error(losses):
    losses.steps = [step_result(1, [True] * 2, 5.0), step_result(2, [True], 1.0, grad_norm=INF, skipped=True)]
    losses.collect()
    losses.collect()
    assert losses.progress.mean_loss(losses.progress.logged) == 2.0
    assert (losses.progress.logged, losses.progress.evaluated) == ([0.0, 0], [6.0, 3])


@pytest.mark.parametrize(
    ("step", "start", "places"),
    [
        (
            step_result(17, [True, False, True, False], INF, np.arange(4) + 3, NAN),
            "the loss is inf and the gradient norm nan; rows whose logits are not finite: ",
            (4, 6),
        ),
        (
            step_result(17, [True, True], 1.0, None, INF),
            "the loss is 0.5 and the gradient norm inf; all logits are finite; rows of the batch: ",
            (0, 1),
        ),
        (
            step_result(17, [False], NAN, None, NAN, skipped=True),
            "the loss is nan and the gradient norm nan; rows whose logits are not finite: ",
            (0,),
        ),
    ],
)
def test_a_step_that_is_not_finite_names_its_rows(losses, step, start, places):
    losses.steps = [step_result(16, [True]), step]
    with pytest.raises(TrainingError) as caught:
        losses.collect()
    split, said = losses.loader.split, str(caught.value).removeprefix(f"step 17: {start}")
    rows = [int(split.rows[place]) for place in places]
    named, file = said.split(" of ", 1)
    assert sorted(named.split(", ")) == sorted(f"{row} (line {split.table.line(row)})" for row in rows)
    assert file.startswith(split.table.source)


def test_too_many_skipped_steps_in_a_row_end_the_run(losses):
    skipped = [step_result(number, [True], 1.0, None, NAN, True) for number in range(1, MAX_SKIPPED + 1)]
    losses.steps = [*skipped[:-1], step_result(MAX_SKIPPED, [True]), *skipped[:-1]]
    losses.collect()
    losses.steps = skipped[-1:]
    with pytest.raises(TrainingError, match=f"step {MAX_SKIPPED}: the last {MAX_SKIPPED} steps were skipped"):
        losses.collect()


@pytest.mark.parametrize("early", [{}, {"train__early_stopping": 1, "train__eval_every": 1}])
def test_a_training_without_an_update_has_no_report(early, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Single, "update", lambda self, norm: (norm, True))
    for _ in range(2):
        assert main("single", "", settings(data, tmp_path / "run", train__epochs=1, **early)) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.match(r"error: all \d steps were skipped, .* nothing was trained, and there", said)
        assert not (tmp_path / "run" / "report.json").exists()


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_rows_whose_logits_are_not_finite_are_named(loader, value):
    split, logits = loader.split, np.zeros((len(loader), 3), np.float32)
    check_finite(logits, split, 7)
    logits[[1, 3], [2, 0]] = value
    named = ", ".join(f"{row} (line {split.table.line(row)})" for row in sorted(split.rows[[1, 3]]))
    start = f"step 7: evaluation on train needs finite logits, found 2 of {len(loader)} rows without: {named}"
    with pytest.raises(TrainingError, match=f"^{re.escape(start)}"):
        check_finite(logits, split, 7)
    logits[:] = value
    with pytest.raises(TrainingError, match=rf"\) and {len(loader) - 10} more of "):
        check_finite(logits, split, 7)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_model_that_is_not_a_number_is_not_the_best(data, tmp_path, world_size):
    """The weights are spoilt in the step before the first evaluation; its own loss is finite."""
    argv = settings(data, tmp_path / "run", train__epochs=2, train__eval_every=2)
    disturbances = [Disturbance(1, "spoil_weights", rank) for rank in range(world_size)]
    run = Run("ddp" if world_size > 1 else "single", world_size, argv, disturbances, tmp_path / "log")
    assert run.join() == [1] * world_size, run.said()
    # Two ranks may write on one line
    error = r"error(?: \(rank 1\))?: step 2: evaluation on dev needs finite logits, found "
    assert len(re.findall(error, run.said())) == world_size, run.said()
    assert "best" not in run.said().replace("saved as the best", "")
    assert not (tmp_path / "run" / "report.json").exists()
