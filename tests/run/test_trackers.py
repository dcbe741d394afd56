"""Services that follow a run: they are told each point once, and end no training: python -m pytest
tests/run/test_trackers.py"""

import json
import os
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from shlex import split

import pytest

from app.config.command_line import load_config
from app.config.schema import OutputConfig
from app.errors import InputError
from app.run.entry import main
from app.run.log.run_log import flat
from app.run.log.trackers import TRACKERS, check_trackers
from app.run.log.trackers.background import MAX_FAILURES, BackgroundTracker
from app.run.log.trackers.tracker import TrackedRun, Tracker
from tests.tiny import write_tiny

SMALL = [
    *split("--model.config.hidden_size 32 --model.config.num_hidden_layers 1"),
    *split("--train.device cpu --train.precision fp32 --model.config.num_attention_heads 4"),
    *split("--model.config.intermediate_size 64 --train.threads 1 --train.batch_size 16"),
    *split("--train.log_every 2 --output.tensorboard false --data.max_length 24"),
]


class Recorder(Tracker):
    """Keeps what it gets in memory; raises at the steps in `fails`, and waits where it is `stuck`."""

    fails: frozenset = frozenset()
    stuck: threading.Event | None = None
    started: list

    def __init__(self, run, run_id):
        self.started.append(run_id)
        self.run_id = run_id or "run-1"

    def add(self, values, step):
        if self.stuck:
            self.stuck.wait(120)
        if step in self.fails:
            raise SystemError(f"no answer at {step}")
        self.points.append((step, values))

    def close(self, status):
        self.points.append(status)


def recorder(**attributes) -> type[Recorder]:
    return type("Recorder", (Recorder,), {"points": [], "started": [], **attributes})


@pytest.fixture
def run(tmp_path) -> TrackedRun:
    return TrackedRun(tmp_path, "name", "project", {"train.epochs": 3})


def test_points_arrive_in_their_order_and_once_after_resuming(run):
    first = recorder()
    tracker = BackgroundTracker("x", lambda: first, run)
    for step in (2, 4):
        tracker.add("train", {"loss": 1 / step}, step)
    tracker.add("dev", {"accuracy": 0.5}, 4)
    tracker.close("stopped", 120)
    assert first.points == [
        (2, {"train/loss": 0.5}),
        (4, {"train/loss": 0.25}),
        (4, {"dev/accuracy": 0.5}),
        "stopped",
    ]
    assert json.loads((run.folder / "trackers" / "x.json").read_text()) == {
        "id": "run-1",
        "steps": {"train": 4, "dev": 4},
    }
    second = recorder()
    tracker = BackgroundTracker("x", lambda: second, run)
    # It resumes after step 2
    for step in (4, 6):
        tracker.add("train", {"loss": 1.0}, step)
    tracker.add("dev", {"accuracy": 0.5}, 4)
    tracker.close("finished", 120)
    assert second.started == ["run-1"]
    assert second.points == [(6, {"train/loss": 1.0}), "finished"]


def test_a_point_may_be_lost_and_a_tracker_that_keeps_failing_is_left_out(run, caplog):
    kind = recorder(fails=frozenset({2, 6, 8, 10}))
    tracker = BackgroundTracker("x", lambda: kind, run)
    for step in range(2, 16, 2):
        tracker.add("train", {"loss": 1.0}, step)
    tracker.close("finished", 120)
    assert [step for step, _ in kind.points] == [4]
    lost = [record.message for record in caplog.records if "lost the point" in record.message]
    assert len(lost) == 1 + MAX_FAILURES
    assert "The tracker x is left out from here on: SystemError: no answer at 10." in caplog.text
    tracker.add("train", {"loss": 1.0}, 16)


def test_one_that_cannot_start_is_left_out(run, caplog):
    def find():
        raise SystemExit("no key")

    tracker = BackgroundTracker("x", find, run)
    tracker.close("finished", 120)
    assert "The tracker x is left out from here on: SystemExit: no key" in caplog.text


def test_one_that_does_not_answer_holds_nothing_up(run, caplog):
    stuck = threading.Event()
    tracker = BackgroundTracker("x", lambda: recorder(stuck=stuck), run)
    try:
        for step in range(30):
            tracker.add("train", {"loss": 1.0}, step)
        tracker.close("finished", 0.2)
        assert "it has not answered for 0.2 seconds" in caplog.text
    finally:
        stuck.set()
    tracker.thread.join(120)
    assert not tracker.thread.is_alive()


def test_settings_are_checked():
    wrong = load_config(["--output.trackers", "[mlfow]"]).output
    with pytest.raises(
        InputError, match="names out of mlflow, wandb, swanlab, found 'mlfow'; did you mean 'mlflow'"
    ):
        check_trackers(wrong)
    assert load_config(["--output.trackers", "[mlflow, wandb]"]).output.trackers == ["mlflow", "wandb"]
    missing = [name for name in TRACKERS if find_spec(name) is None]
    for name in missing:
        with pytest.raises(
            InputError, match=f"{name} needs a library: pip install -r requirements/{name}.txt"
        ):
            check_trackers(replace(OutputConfig(), trackers=[name]))
    check_trackers(replace(OutputConfig(), trackers=[name for name in TRACKERS if name not in missing]))
    assert flat({"train": {"epochs": 3, "max_steps": None}}) == {"train.epochs": 3}


def start(tmp_path: Path, *arguments: str) -> int:
    data = tmp_path / "rows.tsv"
    if not data.exists():
        write_tiny(data, 20)
    return main("single", "", ["--data.train", str(data), "--output.dir", "run", *SMALL, *arguments])


@pytest.mark.slow
def test_mlflow_has_the_whole_run_also_when_it_is_trained_for_longer(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs MLflow: pip install -r requirements/mlflow.txt")
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    trackers = ["--output.trackers", "[mlflow]", "--output.project", "tiny"]
    assert start(tmp_path, "--train.epochs", "2", *trackers) == 0
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    client = MlflowClient("mlruns")

    def only_run():
        (found,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
        return found

    first = only_run()
    assert (first.info.status, first.info.run_name) == ("FINISHED", "run")
    assert first.data.params["train.batch_size"] == "16"
    assert start(tmp_path, "--train.epochs", "4", "--resume", "auto", *trackers) == 0
    second = only_run()
    assert (second.info.run_id, second.info.status) == (first.info.run_id, "FINISHED")
    steps = [metric.step for metric in client.get_metric_history(second.info.run_id, "train/loss")]
    assert steps == [1, 2, 4, 6, 8, 10, 12]
    dev = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    history = client.get_metric_history(second.info.run_id, "dev/accuracy")
    assert [(metric.step, metric.value) for metric in history] == [
        (line["step"], line["accuracy"]) for line in dev
    ]
    assert "report_test/macro_f1" in second.data.metrics


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_ends_no_training(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs MLflow: pip install -r requirements/mlflow.txt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert start(tmp_path, "--train.epochs", "1", "--output.trackers", "[mlflow]") == 0
    assert Path("run/report.json").exists()
    assert "The tracker mlflow is left out from here on: " in Path("run/train.log").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variable"), [("wandb", "WANDB_MODE"), ("swanlab", "SWANLAB_MODE")])
def test_the_others_write_offline(name, variable, tmp_path, monkeypatch):
    pytest.importorskip(name, reason=f"needs {name}: pip install -r requirements/{name}.txt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "offline")
    assert start(tmp_path, "--train.epochs", "1", "--output.trackers", f"[{name}]") == 0
    known = json.loads(Path(f"run/trackers/{name}.json").read_text())
    assert known["steps"]["train"] == known["steps"]["dev"] == known["steps"]["report_test"] == 3
    folder = "wandb" if name == "wandb" else "swanlog"
    assert any(known["id"] in path.name for path in Path(folder).rglob("*"))
    assert "left out" not in Path("run/train.log").read_text(encoding="utf-8")
