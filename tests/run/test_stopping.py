"""Signals around the end of a run: a stop is never swallowed, and no work is lost: python -m pytest
tests/run/test_stopping.py"""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import app.training.train
from app.run import main
from app.training.train import Run
from tests.ranks import Disturbance, run, settings


@pytest.fixture
def start(data, tmp_path, monkeypatch):
    """Return a function that runs as run_single.py does; the run gets a signal in its evaluation on a
    split."""
    evaluate = Run.evaluate

    def start_run(split: str = "", number: int = 0) -> int:
        def disturbed(self, name, step):
            if name == split:
                os.kill(os.getpid(), number)
            return evaluate(self, name, step)

        monkeypatch.setattr(Run, "evaluate", disturbed)
        return main("single", "", settings(data, tmp_path / "run", train__epochs=1))

    return start_run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("split", "said"), [("dev", "only the report is missing"), ("test", "before the report was")]
)
def test_a_signal_in_the_last_evaluations_stops_and_only_the_report_is_missing(
    split, said, number, start, tmp_path, capsys
):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert start(split, number) == 128 + number
    stderr = capsys.readouterr().err
    assert f"Stopped by {signal.Signals(number).name}" in stderr
    assert said in stderr
    assert not (tmp_path / "run" / "report.json").exists()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert start() == 0
    stderr = capsys.readouterr().err
    assert "Resuming from step 6." in stderr
    assert "step 6/6  loss" not in stderr, "no step is trained again"
    assert (tmp_path / "run" / "report.json").exists()


def test_the_cache_may_be_removed_while_a_run_trains(data, start, at_step, tmp_path):
    """The report and the predictions have the texts and lines of their rows all the same."""
    _, rows_file, _, cache = map(Path, data)
    at_step(0, lambda: shutil.rmtree(cache))
    assert start() == 0
    assert not cache.exists()
    lines = Path(tmp_path, "run", "predictions.csv").read_text(encoding="utf-8").splitlines()
    rows = rows_file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 13
    assert all(rows[int(line.split(",")[1]) - 1].split("\t")[0] == line.split(",")[2] for line in lines[1:])


def test_a_report_that_is_being_written_is_finished(start, tmp_path, monkeypatch):
    drop_states = app.training.train.drop_states
    monkeypatch.setattr(
        app.training.train,
        "drop_states",
        lambda *values, **keys: (signal.raise_signal(signal.SIGTERM), drop_states(*values, **keys)),
    )
    assert start() == 0
    assert json.loads(Path(tmp_path, "run", "report.json").read_text())["split"] == "test"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_a_signal_to_one_rank_in_the_last_evaluation_stops_all(mode, data, tmp_path):
    argv, log = settings(data, tmp_path / "run", train__epochs=1), tmp_path / "log"
    codes = run(mode, 2, argv, [Disturbance(-1, "terminate_in_evaluation", 1)], log)
    assert codes == [143, 143], log.read_text()[-3000:]
    assert "only the report is missing" in log.read_text()
    assert run(mode, 2, argv, log=log) == [0, 0]
    assert (tmp_path / "run" / "report.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "world_size"), [("single", 1), ("ddp", 2), ("mp", 2)])
def test_a_signal_after_the_report_leaves_the_run_complete(mode, world_size, data, tmp_path):
    argv, log = settings(data, tmp_path / "run", train__epochs=1), tmp_path / "log"
    late = [Disturbance(-1, "terminate_late", rank) for rank in range(world_size)]
    assert run(mode, world_size, argv, late, log) == [0] * world_size, log.read_text()[-3000:]
    assert (tmp_path / "run" / "report.json").exists()
