"""The log of a run: python -m pytest tests/training/test_progress.py"""

import re

from app.config.schema import Config, OutputConfig, TrainConfig
from app.training.log import RunLog, start_logging
from tests.training.tiny_training import step_result

METRICS = ("loss", "accuracy", "macro_f1", "weighted_f1")
QUIET = Config(train=TrainConfig(log_every=1), output=OutputConfig(trackers=[]))


def test_a_training_without_end_is_logged(tmp_path, capsys):
    (tmp_path / "run_history.json").touch()
    start_logging(is_main=True)
    log = RunLog(tmp_path, QUIET, METRICS, total_steps=10**20)
    for step in (step_result(1, [True], 1.0), step_result(2, [True], 1.0, skipped=True)):
        log.count(step)
        log.step(step, 0.9)
    log.close()
    first, second = capsys.readouterr().err.splitlines()
    assert re.match(r"step 1/10{20}  loss 0.9000  lr 1.00e-03  .* left \d+:\d\d:\d\d$", first)
    assert second.endswith("1 skipped")
    assert first in (tmp_path / "train.log").read_text("utf-8")


def test_other_ranks_keep_nothing_and_say_nothing(tmp_path, capsys):
    start_logging(is_main=False)
    log = RunLog(None, Config(), METRICS, total_steps=2, with_bar=True)
    log.count(step_result(1, [True], 1.0))
    log.step(step_result(1, [True], 1.0), 1.0)
    log.evaluation(1, "dev", {}, True)
    with log.evaluation_bar("dev", 10) as bar:
        bar.update(10)
    log.close()
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
