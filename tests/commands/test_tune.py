"""`python -m app tune` with real runs: python -m pytest tests/commands/test_tune.py -m "slow or chaos or not
slow" """

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import split

import pytest

from app.commands import run_verb
from app.config.command_line import load_config
from tests.processes import ROOT
from tests.tiny import write_tiny

pytest.importorskip("optuna", reason="Optuna is not installed: pip install -r requirements/tune.txt")

TINY = split(
    "--model.config.hidden_size=32 --model.config.num_hidden_layers=1 --model.config.intermediate_size=32 "
    "--model.config.num_attention_heads=4 --model.dropout 0 --train.device cpu --train.threads 1 "
    "--train.batch_size 16 --output.trackers [] --train.learning_rate 0.003 --train.precision fp32 "
    "--space train.epochs '[2, 6]' --space train.warmup '[0.05, 0.5]'"
)


def words(folder: Path, name: str, *more: str) -> list[str]:
    """Return the command line of a search in `folder` / `name`, over a file that is in `folder`."""
    data = [f"--data.train={folder / 'rows.tsv'}", f"--data.cache_dir={folder / 'cache'}"]
    return [*TINY, *data, f"--output.dir={folder / name}", *more]


def start(arguments: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "app", "tune", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, encoding="utf-8", **pipes)


def trials(folder: Path) -> dict[str, dict[str, str]]:
    """Return the last try of each trial in trials.csv, by the name of its folder; without what depends on the
    clock and the number of tries."""
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["user_attrs_run"]: row for row in csv.DictReader(file)}
    keys = [
        key for key in next(iter(rows.values())) if key in ("state", "value") or key.startswith("params_")
    ]
    return {run: {key: row[key] for key in keys} for run, row in sorted(rows.items())}


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trials", "1"], "--trials must be from 2 to 10,000, found 1"),
        (["--train.warmup", "0.1"], "a setting is either fixed or searched, and train.warmup would be both"),
        (["--space", "train.epoch", "[2, 3]"], "there is no setting 'train.epoch'"),
        (["--data.dev_size", "0"], "tune needs dev rows"),
        (["--data.test_size", "0"], "tune needs test rows"),
        (["--mode", "ddpp"], "there is no mode ddpp"),
        (["--data.task", "masked_language_modelling"], "labels are needed"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path, capsys, more, message):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=12)
    assert run_verb("tune", words(tmp_path, "search", *more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "search").exists()


@pytest.mark.slow
def test_a_search_from_the_first_trial_to_the_final_run(tmp_path, capfd):
    """A test file that cannot be read does no harm to trials: they do not open it."""
    write_tiny(tmp_path / "rows.tsv", rows_per_label=30)
    test_file = write_tiny(tmp_path / "test.tsv", rows_per_label=20, seed=1)
    arguments = words(tmp_path, "search", "--trials", "3", "--data.test", str(test_file))
    assert run_verb("tune", arguments) == 0
    assert "optimism of the search" in capfd.readouterr().out
    folder = tmp_path / "search"
    figures, rows = read(folder / "search.json"), trials(folder)
    assert [row["state"] for row in rows.values()] == ["COMPLETE"] * 3
    values = sorted(float(row["value"]) for row in rows.values())
    assert (figures["best_dev"], figures["median_dev"]) == (values[2], values[1])
    for name, row in rows.items():
        report = read(folder / name / "report.json")
        assert (report["split"], set(report["data"])) == ("dev", {"train", "dev"})
        assert report["macro_f1"] == pytest.approx(float(row["value"]))
    (run,) = (path for path in folder.glob("final-*") if path.is_dir())
    final = read(run / "report.json")
    assert (final["split"], final["rows"]) == ("test", 60)
    assert figures["final_test"] == pytest.approx(final["macro_f1"])
    # The same settings, seed and rows as the best trial: the same model
    lines = (run / "metrics.jsonl").read_text().splitlines()
    dev = [one["macro_f1"] for one in map(json.loads, lines) if one["split"] == "dev"]
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
def test_a_trial_that_fails_does_not_end_the_search(tmp_path, capfd):
    """Some trials have two corrections of the same imbalance, which no run may have."""
    write_tiny(tmp_path / "rows.tsv", rows_per_label=15)
    both = split(
        "--space train.loss '[cross_entropy, logit_adjusted]' --space train.class_weights '[none, balanced]'"
    )
    assert run_verb("tune", words(tmp_path, "search", "--trials", "6", "--train.seed", "2", *both)) == 0
    rows = list(trials(tmp_path / "search").values())
    twice = ("logit_adjusted", "balanced")
    wrong = [row for row in rows if (row["params_train.loss"], row["params_train.class_weights"]) == twice]
    assert wrong
    assert [row for row in rows if row["state"] == "FAIL"] == wrong
    assert "correct the same imbalance" in (tmp_path / "search" / "trials.csv").read_text(encoding="utf-8")
    assert "the search goes on" in capfd.readouterr().err


@pytest.mark.chaos
def test_the_trials_of_a_killed_search_are_continued(tmp_path):
    """Killed once and stopped once in the middle of trials: each goes on in its folder with its settings."""
    write_tiny(tmp_path / "rows.tsv", rows_per_label=30)
    assert run_verb("tune", words(tmp_path, "whole", "--trials", "3")) == 0
    arguments = words(tmp_path, "killed", "--trials", "3")
    process = start(arguments)
    wait_for(tmp_path / "killed" / "trial-001.log")
    process.kill()
    process.communicate()
    process = start(arguments)
    wait_for(tmp_path / "killed" / "trial-002.log")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 128 + signal.SIGINT
    assert "the same command continues" in process.communicate()[1]
    assert run_verb("tune", arguments) == 0
    assert trials(tmp_path / "killed") == trials(tmp_path / "whole")
    assert read(tmp_path / "killed" / "search.json") == read(tmp_path / "whole" / "search.json")
    folders = sorted(path.name for path in (tmp_path / "killed").glob("trial-*") if path.is_dir())
    assert folders == ["trial-000", "trial-001", "trial-002"]


@pytest.mark.chaos
def test_two_processes_share_the_trials(tmp_path):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=20)
    processes = [start(words(tmp_path, "search", "--trials", "4")) for _ in range(2)]
    outputs = [process.communicate(timeout=500) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    names = {f"trial-00{number}" for number in range(4)}
    assert {run: row["state"] for run, row in trials(tmp_path / "search").items()} == dict.fromkeys(
        names, "COMPLETE"
    )
    one, other = (
        {line.split(":")[0] for line in errors.splitlines() if "training, its" in line}
        for _, errors in outputs
    )
    assert not one & other
    assert names < one | other
    assert sum("optimism of the search" in out for out, _ in outputs) >= 1
    assert len(list((tmp_path / "search").glob("final-*.log"))) == 1


def wait_for(path: Path) -> None:
    """Wait until a file has something in it."""
    deadline = time.monotonic() + 240
    while not (path.exists() and os.path.getsize(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()
