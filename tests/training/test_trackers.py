"""Services that follow a run end no training: python -m pytest tests/training/test_trackers.py"""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from app.config.command_line import load_config
from app.config.schema import Config, OutputConfig, TrainConfig
from app.errors import InputError
from app.run import main
from app.training.log import PROJECT, RunLog, check_trackers
from tests.multi_label_runs import train, write_posts
from tests.ranks import settings


class Recorder(GeneralTracker):
    """Keeps what it gets; raises at the step `fails`."""

    name = "recorder"
    requires_logging_directory = False
    tracker = None
    fails: int | None = None
    calls: list

    def __init__(self, project):
        super().__init__()
        self.calls.append(project)

    def start(self):
        if self.fails == 0:
            raise SystemExit("no key")

    def store_init_configuration(self, values):
        self.calls.append(values)

    def log(self, values, step):
        if step == self.fails:
            raise SystemError(f"no answer at {step}")
        self.calls.append((step, values))

    def finish(self):
        self.calls.append("end")


@pytest.fixture
def recorder(monkeypatch) -> type[Recorder]:
    """A tracker that has the name of any module."""
    kind = type("Recorder", (Recorder,), {"calls": []})
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "json", kind)
    return kind


@pytest.mark.parametrize(
    ("fails", "num_calls", "error"), [(0, 1, "SystemExit: no key"), (4, 3, "SystemError: no answer at 4")]
)
def test_a_tracker_that_fails_is_left_out_with_one_warning(
    recorder, fails, num_calls, error, tmp_path, caplog
):
    recorder.fails = fails
    config = Config(train=TrainConfig(epochs=3), output=OutputConfig(trackers=["json"]))
    check_trackers(config.output)
    (tmp_path / "run_history.json").touch()
    log = RunLog(tmp_path, config, (), 4)
    for step in (2, 4, 4):
        log.track("train", {"loss": 1 / step}, step)
    log.close()
    assert recorder.calls[0] == PROJECT
    assert len(recorder.calls) == num_calls
    if fails:
        assert recorder.calls[1]["train.epochs"] == 3
        assert "train.max_steps" not in recorder.calls[1]
        assert recorder.calls[2] == (2, {"train/loss": 0.5})
    assert caplog.messages == [
        f"The tracker json is left out from here on: {error}. The training is not affected."
    ]


def test_a_tracker_gets_the_figures_of_the_report(tmp_path, recorder):
    """At the thresholds that were chosen on dev."""
    rows = write_posts(tmp_path / "rows.jsonl")
    changes = {"data__test_size": 0.3, "train__max_steps": 8, "output__trackers": "[json]"}
    report = train(rows, tmp_path / "run", data__task="multi_label", **changes)
    assert recorder.calls[-1] == "end"
    points = [call[1] for call in recorder.calls[2:-1]]
    assert {name.partition("/")[0] for values in points for name in values} == {"train", "dev", "report_test"}
    (tracked,) = (values for values in points if "report_test/loss" in values)
    assert tracked == {name: report[name.removeprefix("report_test/")] for name in tracked}
    assert len(tracked) == 4
    assert {scores["threshold"] for scores in report["classes"].values()} != {0.5}


def test_settings_are_checked():
    wrong = load_config(["--output.trackers", "[mlfow]"]).output
    with pytest.raises(InputError, match="names out of .*mlflow.*wandb.*, found 'mlfow'; did you mean 'mlf"):
        check_trackers(wrong)
    for name in [*LOGGER_TYPE_TO_CLASS]:
        config = OutputConfig(trackers=[name])
        if find_spec(name):
            check_trackers(config)
            continue
        package = f"-r requirements/{name}.txt" if name in ("mlflow", "wandb", "swanlab") else name
        needed = f"{name} needs a library: pip install {package}, or leave it out"
        with pytest.raises(InputError, match=needed):
            check_trackers(config)


def start(data: list[str], trackers: str) -> str:
    """Train in the folder `run`, which a tracker does not end; return the log."""
    changes = {"train__log_every": 2, "train__epochs": 1, "output__trackers": trackers}
    assert main("single", "", settings(data, Path("run"), **changes)) == 0
    assert Path("run/report.json").exists()
    return Path("run/train.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_mlflow_has_the_whole_run_and_may_not_be_there(data, empty_folder, monkeypatch):
    pytest.importorskip("mlflow", reason="needs MLflow: pip install -r requirements/mlflow.txt")
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert "left out" not in start(data, "[mlflow]")
    client = MlflowClient("mlruns")
    (run,) = client.search_runs([client.get_experiment_by_name(PROJECT).experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["train.batch_size"] == "16"
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "train/loss")]
    assert steps == [1, 2, 4, 6]
    dev = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    points = client.get_metric_history(run.info.run_id, "dev/accuracy")
    assert [(point.step, point.value) for point in points] == [(one["step"], one["accuracy"]) for one in dev]
    assert "report_test/macro_f1" in run.data.metrics
    Path("run").rename("first")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert "The tracker mlflow is left out from here on: " in start(data, "[mlflow]")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variable"), [("wandb", "WANDB_MODE"), ("swanlab", "SWANLAB_MODE")])
def test_the_others_write_offline(name, variable, data, empty_folder, monkeypatch):
    pytest.importorskip(name, reason=f"needs {name}: pip install -r requirements/{name}.txt")
    monkeypatch.setenv(variable, "offline")
    assert "left out" not in start(data, f"[{name}]")
    assert any(Path("wandb" if name == "wandb" else "swanlog").iterdir())
