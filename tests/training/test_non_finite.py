"""Training that can learn no more is an error: python -m pytest tests/training/test_non_finite.py"""

import re
from dataclasses import replace

import pytest
import torch

from app.config.schema import Config, TrainConfig
from app.errors import TrainingError
from app.modes.single import Single
from app.run import main
from app.training.non_finite import MAX_SKIPPED, FiniteCheck
from app.training.step import StepResult
from tests.ranks import settings
from tests.tiny import loaders_of, open_tiny, tiny_model
from tests.training.tiny_training import step_result


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    dataset, _, stores = open_tiny(tmp_path_factory.mktemp("finite"))
    return loaders_of(dataset, stores, tiny_model(), packed=True)["train"]


def step_log(number: int, finite: list[bool], skipped: bool) -> StepResult:
    return step_result(number, finite, grad_norm=float("nan") if skipped else 1.0, skipped=skipped)


def new_check(loader, precision: str = "fp32") -> FiniteCheck:
    return FiniteCheck(Single(Config(train=TrainConfig(precision=precision))), loader)


@pytest.mark.parametrize(
    ("finite", "advice"),
    [
        ([False, False], "no row has finite logits, so the weights are to blame"),
        ([False, True], "look at these rows, or lower train.learning_rate"),
    ],
)
def test_the_advice_depends_on_what_is_not_finite(loader, finite, advice):
    with pytest.raises(TrainingError, match=advice):
        new_check(loader)([step_log(1, finite, skipped=False)], [float("nan")])


def test_too_many_skipped_steps_in_a_row_end_the_run(loader):
    check, loss = new_check(loader, "fp16"), 1.0
    for number in range(1, MAX_SKIPPED):
        check([step_log(number, [True], skipped=True)], [loss])
    # One that learns
    check([step_log(MAX_SKIPPED, [True], skipped=False)], [1.0])
    steps = [step_log(number, [True], skipped=True) for number in range(1, MAX_SKIPPED + 1)]
    check(steps[:-1], [loss] * (MAX_SKIPPED - 1))
    with pytest.raises(TrainingError, match=f"step {MAX_SKIPPED}: the last {MAX_SKIPPED} steps were skipped"):
        check(steps[-1:], [loss])


def test_a_norm_that_is_not_finite_ends_the_run(loader):
    norms = [torch.tensor(float(number)) for number in range(8)] + [torch.tensor(float("inf"))]
    steps = [
        replace(step_log(number, [True], skipped=False), grad_norm=None if number == 4 else norm)
        for number, norm in enumerate(norms)
    ]
    new_check(loader)(steps[:-1], [1.0] * 8)
    with pytest.raises(TrainingError, match="step 8: .* the gradient norm inf"):
        new_check(loader)(steps, [1.0] * 9)


@pytest.mark.parametrize("early", [{}, {"train__early_stopping": 1, "train__eval_every": 1}])
def test_a_training_without_an_update_has_no_report(early, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Single, "update", lambda self, norm: (norm, True))
    assert main("single", "", settings(data, tmp_path / "run", train__epochs=1, **early)) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"error: all \d steps were skipped, .* nothing was trained, and there is no report", said)
    assert not (tmp_path / "run" / "report.json").exists()
