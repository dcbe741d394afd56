"""The log of a run: python -m pytest tests/training/test_progress.py"""

import re

from app.config.schema import Config, OutputConfig
from app.modes.single import Single
from app.training.log import Losses, RunLog, start_logging
from app.training.step import StepResult
from tests.training.tiny_training import step_result

METRICS = ("loss", "accuracy", "macro_f1", "weighted_f1")
QUIET = OutputConfig(trackers=[])


def step_log(step: int, loss_sum: float, rows: int, skipped: bool = False) -> StepResult:
    return step_result(step, [True] * rows, loss_sum=loss_sum, grad_norm=2.5, skipped=skipped)


def test_logged_loss_is_a_mean_over_rows_not_of_means(tmp_path, capsys):
    start_logging(is_main=True)
    log = RunLog(tmp_path, QUIET, METRICS, total_steps=3, log_every=3)
    # Of a training state
    losses = Losses(Single(Config()), [(6.0, 2)])
    for entry in (step_log(1, 4.0, 1), step_log(2, 8.0, 8), step_log(3, 1.0, 2, skipped=True)):
        losses.on_device.append(entry)
        log.count(entry)
        # As for an evaluation or a save: what is collected still counts in the next line
        losses.collect()
        if log.is_due(entry.step):
            log.step(entry, losses.take_mean())
    log.close()
    # (6 + 4) / (2 + 1) and (8 + 1) / (8 + 2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("step 1/3  loss 3.3333  lr 1.00e-03")
    assert second.startswith("step 3/3  loss 0.9000  lr 1.00e-03")
    assert second.endswith("1 skipped")


def test_a_training_without_end_is_logged(tmp_path):
    start_logging(is_main=True)
    log = RunLog(tmp_path, QUIET, METRICS, total_steps=10**20, log_every=1)
    log.count(step_log(1, 1.0, 1))
    log.step(step_log(1, 1.0, 1), 1.0)
    log.close()
    assert re.search(r"step 1/10{20}  .* left \d+ days", (tmp_path / "train.log").read_text("utf-8"))


def test_other_ranks_keep_nothing_and_say_nothing(tmp_path, capsys):
    start_logging(is_main=False)
    log = RunLog(None, OutputConfig(), METRICS, total_steps=2, log_every=1, with_bar=True)
    log.count(step_log(1, 1.0, 1))
    log.step(step_log(1, 1.0, 1), 1.0)
    log.evaluation(1, "dev", {}, True, 0.1)
    with log.bar.evaluation("dev", 10) as bar:
        bar.update(10)
    log.close()
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
