"""Services that follow a run end no training: python -m pytest tests/training/test_trackers.py"""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from app.config.command_line import load_config
from app.config.schema import OutputConfig
from app.errors import InputError
from app.run import main
from app.training.trackers import PROJECT, Trackers, check_trackers
from tests.multi_label_runs import train, write_posts
from tests.ranks import settings
from tests.tiny import write_tiny


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
def track(tmp_path, monkeypatch):
    """Return a function that has a tracker follow a run of a few steps, and returns what it got."""

    def run(fails: int | None = None) -> list:
        kind = type("Recorder", (Recorder,), {"calls": [], "fails": fails})
        # The name of any module
        monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "json", kind)
        config = OutputConfig(trackers=["json"])
        check_trackers(config)
        trackers = Trackers(config, tmp_path, {"train": {"epochs": 3, "max_steps": None}})
        for step in (2, 4):
            trackers.add("train", {"loss": 1 / step}, step)
        trackers.add("dev", {"accuracy": 0.5}, 4)
        trackers.close()
        return kind.calls

    return run


def test_a_tracker_gets_the_settings_and_all_points(track):
    points = [(2, {"train/loss": 0.5}), (4, {"train/loss": 0.25}), (4, {"dev/accuracy": 0.5})]
    assert track() == [PROJECT, {"train.epochs": 3}, *points, "end"]


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_a_tracker_gets_the_figures_of_the_report(task, tmp_path, monkeypatch):
    """Those at the thresholds that were chosen on dev, too."""
    kind = type("Recorder", (Recorder,), {"calls": []})
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "json", kind)
    write = write_tiny if task == "single_label" else write_posts
    rows = write(tmp_path / ("rows.tsv" if task == "single_label" else "rows.jsonl"))
    changes = {"data__test_size": 0.3, "train__max_steps": 8, "output__trackers": "[json]"}
    report = train(rows, tmp_path / "run", data__task=task, **changes)
    (tracked,) = (call[1] for call in kind.calls if isinstance(call, tuple) and "report_test/loss" in call[1])
    assert tracked == {name: report[name.removeprefix("report_test/")] for name in tracked}
    assert len(tracked) == 4
    if task == "multi_label":
        assert {scores["threshold"] for scores in report["classes"].values()} != {0.5}


@pytest.mark.parametrize(
    ("fails", "num_calls", "error"), [(0, 1, "SystemExit: no key"), (4, 3, "SystemError: no answer at 4")]
)
def test_a_tracker_that_fails_is_left_out_with_one_warning(track, caplog, fails, num_calls, error):
    assert len(track(fails)) == num_calls
    assert caplog.messages == [
        f"The tracker json is left out from here on: {error}. The training is not affected."
    ]


def test_settings_are_checked():
    wrong = load_config(["--output.trackers", "[mlfow]"]).output
    with pytest.raises(InputError, match="names out of .*mlflow.*wandb.*, found 'mlfow'; did you mean 'mlf"):
        check_trackers(wrong)
    assert load_config(["--output.trackers", "[mlflow, wandb]"]).output.trackers == ["mlflow", "wandb"]
    known = [name for name in LOGGER_TYPE_TO_CLASS if name != "tensorboard"]
    missing = [name for name in known if find_spec(name) is None]
    for name in missing:
        package = f"-r requirements/{name}.txt" if name in ("mlflow", "wandb", "swanlab") else name
        needed = f"{name} needs a library: pip install {package}, or leave it out"
        with pytest.raises(InputError, match=needed):
            check_trackers(replace(OutputConfig(), trackers=[name]))
    check_trackers(replace(OutputConfig(), trackers=[name for name in known if name not in missing]))


def start(data: list[str], epochs: int, trackers: str) -> int:
    changes = {"train__log_every": 2, "train__epochs": epochs, "output__trackers": trackers}
    return main("single", "", settings(data, Path("run"), **changes))


@pytest.mark.slow
def test_mlflow_has_the_whole_run_also_when_it_is_trained_for_longer(data, empty_folder, monkeypatch):
    pytest.importorskip("mlflow", reason="needs MLflow: pip install -r requirements/mlflow.txt")
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert start(data, 1, "[mlflow]") == 0
    client = MlflowClient("mlruns")

    def only_run():
        project = client.get_experiment_by_name("chinese-text-classification")
        (found,) = client.search_runs([project.experiment_id])
        return found

    first = only_run()
    assert (first.info.status, first.info.run_name) == ("FINISHED", "run")
    assert first.data.params["train.batch_size"] == "16"
    assert start(data, 2, "[mlflow]") == 0
    second = only_run()
    assert (second.info.run_id, second.info.status) == (first.info.run_id, "FINISHED")
    steps = [metric.step for metric in client.get_metric_history(second.info.run_id, "train/loss")]
    assert steps == [1, 2, 4, 6, 8, 10, 12]
    dev = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    points = client.get_metric_history(second.info.run_id, "dev/accuracy")
    assert [(point.step, point.value) for point in points] == [(one["step"], one["accuracy"]) for one in dev]
    assert "report_test/macro_f1" in second.data.metrics


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_ends_no_training(data, empty_folder, monkeypatch):
    pytest.importorskip("mlflow", reason="needs MLflow: pip install -r requirements/mlflow.txt")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert start(data, 1, "[mlflow]") == 0
    assert Path("run/report.json").exists()
    log = Path("run/train.log").read_text(encoding="utf-8")
    assert "The tracker mlflow is left out from here on: " in log


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variable"), [("wandb", "WANDB_MODE"), ("swanlab", "SWANLAB_MODE")])
def test_the_others_write_offline(name, variable, data, empty_folder, monkeypatch):
    pytest.importorskip(name, reason=f"needs {name}: pip install -r requirements/{name}.txt")
    monkeypatch.setenv(variable, "offline")
    assert start(data, 1, f"[{name}]") == 0
    known = json.loads(Path("run/trackers.json").read_text())
    folder = "wandb" if name == "wandb" else "swanlog"
    assert any(known[name] in path.name for path in Path(folder).rglob("*"))
    assert "left out" not in Path("run/train.log").read_text(encoding="utf-8")
