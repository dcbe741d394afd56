"""What a search varies, and searches with real runs."""

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import split
from typing import get_args

import pytest

from app.commands import run_verb
from app.config.command_line import load_config
from app.config.schema import TASKS, Loss
from app.data.dataset import open_dataset
from app.errors import InputError, TrainingError
from app.modes.signals import Stopped
from app.runtime.disk import read_json
from tests.multi_label_runs import read_predictions
from tests.processes import ROOT, full_disk, wait_until
from tests.ranks import run_forked, start_ranks
from tests.runs.test_folds import TINY
from tests.tiny import write_tiny

pytest.importorskip("optuna", reason="Optuna is not installed: pip install -r requirements/tune.txt")

from app.runs.search import configured_rate, search
from app.runs.search_space import SearchedSetting, read_space, with_rate
from app.runs.series import Series
from app.runs.study import open_study

SMALL = ["--config", "configs/small_bert.yaml"]
ALL_LOSSES = ", ".join(get_args(Loss))
CLASS_LOSSES = ", ".join(TASKS["single_label"].losses)


def choice(*values) -> SearchedSetting:
    return SearchedSetting("suggest_categorical", {"choices": list(values)})


def ends(number: str, low: float, high: float, log: bool = False) -> SearchedSetting:
    """Return a range of numbers, int or float."""
    return SearchedSetting(f"suggest_{number}", {"low": low, "high": high, "log": log})


def test_ranges_and_choices_are_read():
    wanted = {
        "train.learning_rate": ("[1e-5, 5e-4, log]", ends("float", 1e-5, 5e-4, log=True)),
        "train.weight_decay": ("[0, 1]", ends("float", 0, 1)),
        "train.epochs": ("[2, 8]", ends("int", 2, 8)),
        "train.batch_size": ("[16, 32, 64]", choice(16, 32, 64)),
        "train.loss": ("[focal, cross_entropy]", choice("focal", "cross_entropy")),
        "model.dropout": ("[null, 0.2]", choice(None, 0.2)),
        "data.remove_spaces": ("[true, false]", choice(True, False)),
        "model.config.num_hidden_layers": ("[1, 4]", ends("int", 1, 4)),
    }
    asked = {name: text for name, (text, _) in wanted.items()}
    expected = {name: setting for name, (_, setting) in wanted.items()}
    assert read_space(asked, SMALL, "single_label") == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("train.epochs", "[3]", "must be a list, .* two or more different values"),
        ("train.epochs", "5", r"train\.epochs to search must be a list.*found 5"),
        ("train.epochs", "[8, 2]", "`low <= high` must hold"),
        ("train.epochs", "[8, 2", "must be a list"),
        ("train.weight_decay", "[0, 1, log]", "`low > 0` must hold for `log=True`"),
        ("train.epoch", "[2, 4]", "did you mean 'train.epochs'"),
        ("train.seed", "[1, 9]", "--space train.seed: this setting cannot be searched"),
        ("train.loss", "[focal, hinge]", f"one of {ALL_LOSSES}, found hinge"),
        ("train.loss", "[focal, huber]", f"one of {CLASS_LOSSES} with data.task single_label"),
        ("train.batch_size", "[-1, 2]", "at least 1"),
    ],
)
def test_every_value_is_checked_before_the_search(name, value, message):
    with pytest.raises(InputError, match=message):
        read_space({name: value}, SMALL, "single_label")


def test_the_usual_space_leaves_out_what_is_fixed_and_what_the_task_has_not():
    usual = {"train.learning_rate": ends("float", 1e-5, 5e-4, log=True), "train.epochs": ends("int", 2, 8)}
    both = choice("cross_entropy", "focal")
    assert read_space({}, SMALL, "single_label") == usual | {"train.loss": both}
    assert read_space({}, ["--data.task=regression", "--data.train=x"], "regression") == usual
    words = ["--train.class_weights", "balanced", "--train.epochs", "3", "--train.learning_rate=1e-4"]
    assert read_space({}, words, "single_label") == {"train.loss": both}
    for asked in ({}, {"train.loss": "[focal, cross_entropy]"}):
        with pytest.raises(InputError, match="either fixed or searched, and .*train.loss would be both"):
            read_space(asked, [*words, "--train.loss", "focal"], "single_label")


RATE = "train.learning_rate"


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [(2e-4, 1e-5, 5e-4), (5e-4, 1e-5, 5e-4), (5e-3, 5e-3 / 50**0.5, 5e-3 * 50**0.5), (0.0, 1e-5, 5e-4)],
)
def test_the_usual_rates_have_that_of_the_configuration(rate, low, high):
    setting = with_rate(read_space({}, SMALL, "single_label")[RATE], rate)
    assert setting.options["low"] == pytest.approx(low)
    assert setting.options["high"] == pytest.approx(high)
    assert setting.has(rate) == (rate > 0)


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        (["--config=configs/small_bert.yaml"], 5e-4),
        (["--model.name=random"], 3e-5),
        (["--model.name=random", "--model.lora_rank=4"], 3e-4),
    ],
)
def test_the_rate_of_a_configuration_is_what_a_run_with_it_has(tmp_path, words, rate):
    rows = write_tiny(tmp_path / "rows.tsv", rows_per_label=10)
    data = [f"--data.train={rows}", f"--data.cache_dir={tmp_path / 'cache'}"]
    config = load_config([*words, *data])
    assert configured_rate(config, open_dataset(config.data)) == pytest.approx(rate)


def test_the_first_trial_has_the_rate_of_the_configuration(tmp_path, monkeypatch):
    """The search is stopped before its first run."""
    rows = write_tiny(tmp_path / "rows.tsv", rows_per_label=10)
    data = [f"--data.train={rows}", f"--data.cache_dir={tmp_path / 'cache'}", "--data.dev_size=0.2"]
    settings = [*SMALL, *data, "--data.test_size=0.2", f"--output.dir={tmp_path / 'search'}"]
    begun = []

    def stop(series: Series, name: str, settings: dict) -> None:
        begun.append(settings)
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(Series, "run", stop)
    series = Series(tmp_path / "search", "tune", "single", 1, settings, load_config(settings))
    for _ in range(2):
        # Continued, the trial has the same values
        with pytest.raises(Stopped):
            search(series, {}, num_trials=3)
    assert [settings[RATE] for settings in begun] == [5e-4, 5e-4]


SEARCH = [*TINY, *split("--space train.epochs '[2, 6]' --space train.warmup '[0.05, 0.5]'")]


def words(folder: Path, name: str, *options: str) -> list[str]:
    """Return the command line of a search in `folder` / `name`, over a file that is in `folder`."""
    data = [f"--data.train={folder / 'rows.tsv'}", f"--data.cache_dir={folder / 'cache'}"]
    return [*SEARCH, *data, f"--output.dir={folder / name}", *options]


def start(arguments: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "app", "tune", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, encoding="utf-8", **pipes)


def has_begun(log: Path) -> bool:
    return log.exists() and log.stat().st_size > 0


def trials(folder: Path) -> dict[str, dict[str, str]]:
    """Return the last try of each trial in trials.csv, by the name of its folder; without what depends on the
    clock and the number of tries."""
    rows = {row["user_attrs_run"]: row for row in read_predictions(folder / "trials.csv")}
    same_each_time = ("state", "value", "params_")
    trials_by_run = {}
    for run, row in sorted(rows.items()):
        trials_by_run[run] = {key: row[key] for key in row if key.startswith(same_each_time)}
    return trials_by_run


@pytest.mark.slow
def test_a_search_from_the_first_trial_to_the_final_run(tmp_path, capfd, monkeypatch):
    """A test file that cannot be read does no harm to trials: they do not open it."""
    monkeypatch.setattr("app.runs.series.run_to_end", run_forked)
    write_tiny(tmp_path / "rows.tsv", rows_per_label=30)
    test_file = write_tiny(tmp_path / "test.tsv", rows_per_label=20, seed=1)
    arguments = words(tmp_path, "search", "--trials", "3", "--data.test", str(test_file))
    assert run_verb("tune", arguments) == 0
    assert "optimism of the search" in capfd.readouterr().out
    folder = tmp_path / "search"
    figures = read_json(folder / "search.json")
    rows = trials(folder)
    assert [row["state"] for row in rows.values()] == ["COMPLETE"] * 3
    values = sorted(float(row["value"]) for row in rows.values())
    assert (figures["best_dev"], figures["median_dev"]) == (values[2], values[1])
    for name, row in rows.items():
        report = read_json(folder / name / "report.json")
        assert (report["split"], set(report["data"])) == ("dev", {"train", "dev"})
        assert report["macro_f1"] == pytest.approx(float(row["value"]))
    (run,) = (path for path in folder.glob("final-*") if path.is_dir())
    final = read_json(run / "report.json")
    assert (final["split"], final["rows"]) == ("test", 60)
    assert figures["final_test"] == pytest.approx(final["macro_f1"])
    # The same settings, seed and rows as the best trial: the same model
    lines = (run / "metrics.jsonl").read_text().splitlines()
    dev = [line["macro_f1"] for line in map(json.loads, lines) if line["split"] == "dev"]
    assert max(dev) == pytest.approx(figures["best_dev"])
    assert figures["optimism"] == pytest.approx(figures["best_dev"] - figures["final_test"])
    for chart in ("history", "settings"):
        assert 'class="plotly-graph-div"' in (folder / f"{chart}.html").read_text(encoding="utf-8")
    best = load_config(["--config", str(folder / "best.yaml")])
    assert best.train.epochs == figures["best_settings"]["train.epochs"]
    assert (best.data.test, best.data.verb.use_test) == (str(test_file), True)

    assert run_verb("tune", arguments) == 0
    assert "final-00" in capfd.readouterr().err
    assert run_verb("tune", [*arguments, "--space", "train.weight_decay", "[0, 0.1]"]) == 2
    assert "train.weight_decay was 0.01 and is searched in" in capfd.readouterr().err


@pytest.mark.slow
def test_a_trial_that_fails_does_not_end_the_search(tmp_path, capfd, monkeypatch):
    """The first trial has two corrections of the same imbalance, which no run may have."""
    monkeypatch.setattr("app.runs.series.run_to_end", run_forked)
    write_tiny(tmp_path / "rows.tsv", rows_per_label=15)
    both = ["--space", "train.loss", "[cross_entropy, logit_adjusted]"]
    both += ["--space", "train.class_weights", "[none, balanced]"]
    assert run_verb("tune", words(tmp_path, "search", "--trials", "2", "--train.seed", "5", *both)) == 0
    rows = list(trials(tmp_path / "search").values())
    assert [row["state"] for row in rows] == ["FAIL", "COMPLETE"]
    wrong = rows[0]["params_train.loss"], rows[0]["params_train.class_weights"]
    assert wrong == ("logit_adjusted", "balanced")
    assert "correct the same imbalance" in (tmp_path / "search" / "trials.csv").read_text(encoding="utf-8")
    assert "the search goes on" in capfd.readouterr().err


@pytest.mark.chaos
def test_the_trials_of_a_killed_search_are_continued(tmp_path, monkeypatch):
    """Killed once and stopped once in the middle of trials: each goes on in its folder with its settings."""
    monkeypatch.setattr("app.runs.series.run_to_end", run_forked)
    write_tiny(tmp_path / "rows.tsv", rows_per_label=30)
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    assert run_verb("tune", words(tmp_path, "whole", "--trials", "2")) == 0
    arguments = words(tmp_path, "killed", "--trials", "2")
    process = start(arguments)
    wait_until(lambda: has_begun(killed / "trial-000.log"), 240)
    process.kill()
    process.communicate()
    process = start(arguments)
    wait_until(lambda: has_begun(killed / "trial-001.log"), 240)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 128 + signal.SIGINT
    assert "the same command continues" in process.communicate()[1]
    assert run_verb("tune", arguments) == 0
    assert trials(killed) == trials(whole)
    assert read_json(killed / "search.json") == read_json(whole / "search.json")
    folders = sorted(path.name for path in killed.glob("trial-*") if path.is_dir())
    assert folders == ["trial-000", "trial-001"]


@pytest.mark.chaos
def test_two_processes_share_the_trials(tmp_path):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=20)
    arguments = words(tmp_path, "search", "--trials", "3")

    def search(number: int) -> str:
        """Search in a forked process, whose trials are started as always; return what it prints."""
        log = tmp_path / f"log{number}"
        statuses = start_ranks(run_verb, ("tune", arguments), 1, log, is_alone=True, seconds=500)
        assert statuses == [0], log.read_text()
        return log.read_text()

    with ThreadPoolExecutor() as pool:
        outputs = list(pool.map(search, range(2)))
    names = {f"trial-00{number}" for number in range(3)}
    states = {run: row["state"] for run, row in trials(tmp_path / "search").items()}
    assert states == dict.fromkeys(names, "COMPLETE")
    first, second = (set(re.findall("(.+): training, its", output)) for output in outputs)
    assert not first & second
    assert names < first | second
    assert sum("optimism of the search" in output for output in outputs) >= 1
    assert len(list((tmp_path / "search").glob("final-*.log"))) == 1


def flipped(content: bytes) -> bytes:
    """Flip a bit in the head of each page of a database."""
    changed = bytearray(content)
    for place in range(4096, len(changed), 4096):
        changed[place] ^= 4
    return bytes(changed)


DAMAGES = {
    "empty": lambda content: b"",
    "no database": lambda content: b"{}" * 5000,
    "cut off": lambda content: content[: len(content) // 2],
    "bits flipped": flipped,
    "no tables": lambda content: content[:4096],
}


@pytest.mark.parametrize("fault", [*DAMAGES, "missing"])
def test_a_damaged_study_is_named_and_stays(tmp_path, fault):
    path = tmp_path / "study.db"
    study = open_study(tmp_path, "macro_f1")
    study.tell(study.ask(), 0.5)
    (tmp_path / "trial-000").mkdir()
    assert len(open_study(tmp_path, "macro_f1").trials) == 1
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(DAMAGES[fault](path.read_bytes()))
    left = path.exists() and path.read_bytes()
    with pytest.raises(
        InputError, match=r"study\.db: .*copy the file back, or start the search again in anot"
    ):
        open_study(tmp_path, "macro_f1")
    assert (path.exists() and path.read_bytes()) == left


def test_a_study_that_cannot_be_written_is_an_error_of_the_disk(tmp_path):
    with (
        full_disk(8192),
        pytest.raises(TrainingError, match="study cannot be written: .*free space on the disk"),
    ):
        open_study(tmp_path, "macro_f1")
