"""The log of a run, its evaluations, and services that follow it and end no training."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from app.config.command_line import load_config
from app.config.schema import Config, DataConfig, ModelConfig, OutputConfig, TrainConfig
from app.errors import InputError
from app.modes.mode import Single
from app.run import main
from app.training.build import build
from app.training.log import RunLog, start_logging
from app.training.metrics_file import read_evaluations
from app.training.token_limit import TokenLimit, token_limit
from app.training.trackers import PROJECT, check_trackers
from tests.multi_label_runs import train, write_posts
from tests.ranks import settings
from tests.tiny import SIZES, write_tiny
from tests.training.tiny_training import step_result

METRICS = ("loss", "accuracy", "macro_f1", "weighted_f1")
QUIET = Config(output=OutputConfig(trackers=[]))
LINES = ['{"step": 3, "loss": 1.0, "正面\u2028": 1}\n', '{"step": 6, "loss": 0.5}\n', '{"step": 9}\n']


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "run_history.json").touch()
    return tmp_path


@pytest.mark.parametrize(
    "cut", ["", '{"step": 6, "lo', "\x00\x00", "\n", "5", "[]", "{}", '{"step": "x"}', "[" * 200_000]
)
def test_later_evaluations_and_damaged_lines_are_removed(folder, caplog, cut):
    path = folder / "metrics.jsonl"
    assert read_evaluations(path) == []
    path.write_text("".join(LINES) + cut)
    assert [line["step"] for line in read_evaluations(path)] == [3, 6, 9]
    with RunLog(folder, QUIET, METRICS, total_steps=9, first_step=6):
        pass
    assert path.read_text() == "".join(LINES[:2])
    assert (f"{path}, line 4: no evaluation in JSON; skipped" in caplog.text) == bool(cut)


def limit_of(folder: Path) -> TokenLimit:
    files = {"train": str(write_tiny(folder / "rows.tsv")), "cache_dir": str(folder / "cache")}
    model = ModelConfig("random", config=SIZES)
    train = TrainConfig(device="cpu", threads=1, precision="fp32")
    with Single(Config(DataConfig(**files), model, train)) as mode:
        components = build(mode.config, mode)
        mode.setup(components.model, components.config)
        return token_limit(mode, components)


def test_the_limit_of_products_counts_what_a_token_costs(tmp_path):
    """In the last layer only keys and values are computed for all tokens: with this, small models were said
    to do more than 100 % of what products allow."""
    attention = 4 * 32 * 32
    feed_forward = 2 * 32 * 64
    keys_and_values = 2 * 32 * 32
    assert limit_of(tmp_path).operations == 6 * (attention + feed_forward + keys_and_values)


def test_a_limit_that_a_run_exceeds_is_none(folder, capsys):
    start_logging(is_main=True)
    # So many operations that any run would be faster than products allow
    limit = TokenLimit(torch.device("cpu"), torch.float32, operations=1e30)
    with RunLog(folder, QUIET, METRICS, total_steps=9, limit=limit) as log:
        for step in (step_result(1, [True], 1.0), step_result(2, [True], 1.0)):
            log.count(step)
            log.step(step, 0.9)
            assert "product_speed" not in log.rates()
    assert "of this machine's peak" not in capsys.readouterr().err


@pytest.mark.parametrize("is_main", [True, False])
def test_a_training_without_end_is_logged_and_other_ranks_say_nothing(folder, capsys, is_main):
    start_logging(is_main)
    run_folder = folder if is_main else None
    with RunLog(run_folder, QUIET, METRICS, total_steps=10**20, with_bar=True) as log:
        for step in (step_result(1, [True], 1.0), step_result(2, [True], 1.0, skipped=True)):
            log.count(step)
            log.step(step, 0.9)
        if not is_main:
            log.evaluation(1, "dev", {}, True)
            with log.evaluation_bar("dev", 10) as bar:
                bar.update(10)
    lines = capsys.readouterr().err.splitlines()
    if is_main:
        assert re.match(r"step 1/10{20}  loss 0.9000  lr 1.00e-03  .* left \d+:\d\d:\d\d$", lines[0])
        assert lines[1].endswith("1 skipped")
        assert lines[0] in (folder / "train.log").read_text("utf-8")
    else:
        assert lines == []
        assert [path.name for path in folder.iterdir()] == ["run_history.json"]


class Recorder(GeneralTracker):
    """Keeps what it gets; raises at the step `fails`, or at its start where that is 0."""

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


def recorder_class(calls: list, fails: int | None = None) -> type[Recorder]:
    """Return a class of trackers that add what they get to `calls`."""
    return type("Recorder", (Recorder,), {"calls": calls, "fails": fails})


@pytest.mark.parametrize(("fails", "error"), [(0, "SystemExit: no key"), (8, "SystemError: no answer at 8")])
def test_a_tracker_gets_the_figures_of_a_run_until_it_fails(tmp_path, monkeypatch, caplog, fails, error):
    """It gets those of the report, at the thresholds of dev; one that fails is left out with one warning."""
    whole: list = []
    failed: list = []
    # Trackers in place of the libraries of these names
    monkeypatch.syspath_prepend(tmp_path / "libraries")
    for name in ("aim", "trackio"):
        (tmp_path / "libraries" / name).mkdir(parents=True)
        (tmp_path / "libraries" / name / "__init__.py").touch()
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "aim", recorder_class(whole))
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "trackio", recorder_class(failed, fails))
    rows = write_posts(tmp_path / "rows.jsonl")
    changes = {"data__test_size": 0.3, "train__max_steps": 8, "output__trackers": "[aim, trackio]"}
    report = train(rows, tmp_path / "run", **changes)
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert log.count("is left out from here on") == 1
    assert f"The tracker trackio is left out from here on: {error}. The training is not affected." in log
    assert whole[0] == failed[0] == PROJECT
    assert whole[1]["train.max_steps"] == 8
    assert whole[-1] == "end"
    points = whole[2:-1]
    if fails:
        assert failed[2:] == [(step, values) for step, values in points if step < fails]
    groups = set()
    reported = []
    for _, values in points:
        groups.update(name.partition("/")[0] for name in values)
        if "report_test/loss" in values:
            reported.append(values)
    assert groups == {"train", "dev", "report_test"}
    [tracked] = reported
    assert tracked == {name: report[name.removeprefix("report_test/")] for name in tracked}
    assert len(tracked) == 4
    assert {scores["threshold"] for scores in report["classes"].values()} != {0.5}


def test_settings_are_checked():
    for name in LOGGER_TYPE_TO_CLASS:
        config = OutputConfig(trackers=[name])
        if find_spec(name):
            check_trackers(config)
            continue
        rule = f"output.trackers: the library of {name} is not installed; .* pip install {name}"
        with pytest.raises(InputError, match=rule):
            check_trackers(config)
    # Such a package may exist, and nobody vouches for it
    with pytest.raises(InputError, match="found \\['mlfow'\\]; did you mean 'mlflow'") as error:
        load_config(["--output.trackers", "[mlfow]"])
    assert "pip install" not in str(error.value)


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
