"""The log of a run, its evaluations, and services that follow it and end no training: python -m pytest
tests/training/test_log.py"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from app.config.schema import Config, OutputConfig, TrainConfig
from app.errors import InputError
from app.run import main
from app.training.log import PROJECT, RunLog, check_trackers, read_evaluations, start_logging
from tests.multi_label_runs import train, write_posts
from tests.ranks import settings
from tests.training.tiny_training import step_result

METRICS = ("loss", "accuracy", "macro_f1", "weighted_f1")
QUIET = Config(output=OutputConfig(trackers=[]))
LINES = ['{"step": 3, "loss": 1.0, "正面\u2028": 1}\n', '{"step": 6, "loss": 0.5}\n', '{"step": 9}\n']


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "run_history.json").touch()
    return tmp_path


@pytest.mark.parametrize("cut", ["", '{"step": 6, "lo', "\x00\x00", "\n"])
def test_later_evaluations_and_damaged_lines_are_removed(folder, caplog, cut):
    path = folder / "metrics.jsonl"
    assert read_evaluations(path) == []
    path.write_text("".join(LINES) + cut)
    assert [line["step"] for line in read_evaluations(path)] == [3, 6, 9]
    RunLog(folder, QUIET, METRICS, total_steps=9, first_step=6).close()
    assert path.read_text() == "".join(LINES[:2])
    assert (f"{path}, line 4: no evaluation in JSON; skipped" in caplog.text) == bool(cut)


def test_a_training_without_end_is_logged(folder, capsys):
    start_logging(is_main=True)
    log = RunLog(folder, QUIET, METRICS, total_steps=10**20)
    for step in (step_result(1, [True], 1.0), step_result(2, [True], 1.0, skipped=True)):
        log.count(step)
        log.step(step, 0.9)
    log.close()
    first, second = capsys.readouterr().err.splitlines()
    assert re.match(r"step 1/10{20}  loss 0.9000  lr 1.00e-03  .* left \d+:\d\d:\d\d$", first)
    assert second.endswith("1 skipped")
    assert first in (folder / "train.log").read_text("utf-8")


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


@pytest.mark.parametrize(("fails", "error"), [(0, "SystemExit: no key"), (4, "SystemError: no answer at 4")])
def test_a_tracker_that_fails_is_left_out_with_one_warning(recorder, fails, error, folder, caplog):
    recorder.fails = fails
    config = Config(train=TrainConfig(epochs=3), output=OutputConfig(trackers=["json"]))
    check_trackers(config.output)
    log = RunLog(folder, config, (), 4)
    for step in (2, 4, 4):
        log.track("train", {"loss": 1 / step}, step)
    log.close()
    project, *others = recorder.calls
    assert project == PROJECT
    if fails:
        values, *others = others
        assert values["train.epochs"] == 3
        assert "train.max_steps" not in values
    assert others == ([(2, {"train/loss": 0.5})] if fails else [])
    assert caplog.messages == [
        f"The tracker json is left out from here on: {error}. The training is not affected."
    ]


def test_a_tracker_gets_the_figures_of_the_report(tmp_path, recorder):
    """At the thresholds that were chosen on dev."""
    rows = write_posts(tmp_path / "rows.jsonl")
    changes = {"data__test_size": 0.3, "train__max_steps": 8, "output__trackers": "[json]"}
    report = train(rows, tmp_path / "run", **changes)
    assert recorder.calls[-1] == "end"
    points = [call[1] for call in recorder.calls[2:-1]]
    assert {name.partition("/")[0] for values in points for name in values} == {"train", "dev", "report_test"}
    (tracked,) = (values for values in points if "report_test/loss" in values)
    assert tracked == {name: report[name.removeprefix("report_test/")] for name in tracked}
    assert len(tracked) == 4
    assert {scores["threshold"] for scores in report["classes"].values()} != {0.5}


def test_settings_are_checked():
    for name in ["mlfow", *LOGGER_TYPE_TO_CLASS]:
        config = OutputConfig(trackers=[name])
        if find_spec(name):
            check_trackers(config)
            continue
        rule = f"names of .*mlflow.*wandb.*, each with its library, found '{name}': .* pip install {name}"
        with pytest.raises(InputError, match=rule):
            check_trackers(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variable", "value", "folder"),
    [
        ("mlflow", "MLFLOW_DISABLE_TELEMETRY", "true", "mlruns"),
        ("wandb", "WANDB_MODE", "offline", "wandb"),
        ("swanlab", "SWANLAB_MODE", "offline", "swanlog"),
    ],
)
def test_a_service_writes_into_a_folder(name, variable, value, folder, data, empty_folder, monkeypatch):
    pytest.importorskip(name, reason=f"needs {name}: pip install -r requirements/{name}.txt")
    monkeypatch.setenv(variable, value)
    words = settings(data, Path("run"), train__log_every=2, train__epochs=1, output__trackers=f"[{name}]")
    assert main("single", "", words) == 0
    assert Path("run/report.json").exists()
    assert "left out" not in Path("run/train.log").read_text(encoding="utf-8")
    assert any(Path(folder).iterdir())
