"""`python -m app tune` with real runs: python -m pytest tests/commands/test_tune.py -m "slow or chaos or not
slow" """

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import split

import pytest

from app.config.command_line import load_config
from tests.tiny import write_tiny
from tests.verbs import tune as main

pytest.importorskip("optuna", reason="Optuna is not installed: pip install -r requirements/tune.txt")

ROOT = Path(__file__).resolve().parents[2]
TINY = split(
    "--model.config.hidden_size=32 --model.config.num_hidden_layers=1 --model.config.intermediate_size=32 "
    "--model.config.num_attention_heads=4 --model.dropout 0 --train.device cpu --train.threads 1 "
    "--train.batch_size 16 --output.trackers [] --train.learning_rate 0.003 --train.precision fp32"
)
SPACE = split("--space train.epochs '[2, 6]' --space train.warmup '[0.05, 0.5]'")


def words(folder: Path, name: str, *more: str) -> list[str]:
    """Return the command line of a search in `folder` / `name`, over a file that is in `folder`."""
    data = ["--data.train", str(folder / "rows.tsv"), "--data.cache_dir", str(folder / "cache")]
    return [*TINY, *data, "--output.dir", str(folder / name), *SPACE, *more]


def start(arguments: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "app", "tune", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )


def end(process: subprocess.Popen) -> str:
    out, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    return out


def trials(folder: Path) -> list[dict[str, str]]:
    """Return the rows of trials.csv, without what depends on the clock."""
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
        return [{key: row[key] for key in row if key != "duration"} for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trials", "1"], "--trials must be from 2 to 10,000, found 1"),
        (["--train.warmup", "0.1"], "a setting is either fixed or searched, and train.warmup would be both"),
        (["--space", "train.epoch", "[2, 3]"], "there is no setting 'train.epoch' to search"),
        (["--data.dev_size", "0"], "tune needs dev rows"),
        (["--data.test_size", "0"], "tune needs test rows"),
        (["--mode", "ddpp"], "there is no mode ddpp"),
        (["--data.task", "masked_language_modelling"], "tune needs labels"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path, capsys, more, message):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=12)
    assert main(words(tmp_path, "search", *more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "search").exists()


def test_a_folder_with_other_things_is_refused(tmp_path, capsys):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=12)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert main(words(tmp_path, "mine")) == 2
    assert "is not an empty folder, and holds no series of runs" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_search_from_the_first_trial_to_the_final_run(tmp_path, capfd):
    """A test file that cannot be read does no harm to trials: they do not open it."""
    write_tiny(tmp_path / "rows.tsv", rows_per_label=30)
    test_file = write_tiny(tmp_path / "test.tsv", rows_per_label=20, seed=1)
    arguments = words(tmp_path, "search", "--trials", "3", "--data.test", str(test_file))
    assert main(arguments) == 0
    out = capfd.readouterr().out
    folder = tmp_path / "search"
    figures = json.loads((folder / "search.json").read_text(encoding="utf-8"))
    rows = trials(folder)
    assert [row["state"] for row in rows] == ["COMPLETE"] * 3
    assert figures["best_dev"] == max(float(row["value"]) for row in rows)
    assert figures["median_dev"] == sorted(float(row["value"]) for row in rows)[1]
    for row in rows:
        report = json.loads((folder / f"trial-00{row['trial']}" / "report.json").read_text(encoding="utf-8"))
        assert (report["split"], set(report["data"])) == ("dev", {"train", "dev"})
        assert report["macro_f1"] == pytest.approx(float(row["value"]))
    final = json.loads((folder / figures["final_run"] / "report.json").read_text(encoding="utf-8"))
    assert (final["split"], final["rows"]) == ("test", 60)
    assert figures["final_test"] == pytest.approx(final["macro_f1"])
    # The same settings, seed and rows as the best trial: the same model
    lines = (folder / figures["final_run"] / "metrics.jsonl").read_text().splitlines()
    dev = [one["macro_f1"] for one in map(json.loads, lines) if one["split"] == "dev"]
    assert max(dev) == pytest.approx(figures["best_dev"])
    assert figures["optimism"] == pytest.approx(figures["best_dev"] - figures["final_test"])
    assert "optimism of the search" in out
    page = (folder / "search.html").read_text(encoding="utf-8")
    assert page.count('class="plotly-graph-div"') == 3
    assert f"{figures['final_test']:.4f}" in page
    # It loads nothing from a network
    assert re.findall(r"<(?:script|link|img)[^>]*https?:[^>]*>", page) == []

    best = load_config(["--config", str(folder / "best.yaml")])
    assert best.train.epochs == figures["best_settings"]["train.epochs"]
    assert best.data.test == str(test_file)
    assert best.data.verb.use_test

    assert main(arguments) == 0
    assert "final-00" in capfd.readouterr().err
    assert main([*arguments, "--space", "train.weight_decay", "[0, 0.1]"]) == 2
    assert "train.weight_decay was 0.01 and is searched in FloatDistribution" in capfd.readouterr().err
    write_tiny(tmp_path / "rows.tsv", rows_per_label=31)
    assert main(arguments) == 2
    assert "data.train was" in capfd.readouterr().err


@pytest.mark.slow
def test_a_trial_that_fails_does_not_end_the_search(tmp_path, capfd):
    """Some trials have two corrections of the same imbalance, which no run may have."""
    write_tiny(tmp_path / "rows.tsv", rows_per_label=15)
    both = ["--space", "train.loss", "[cross_entropy, logit_adjusted]"]
    both += ["--space", "train.class_weights", "[none, balanced]"]
    arguments = words(tmp_path, "search", "--trials", "6", "--train.seed", "2", *both)
    assert main(arguments) == 0
    rows = trials(tmp_path / "search")
    wrong = [
        row
        for row in rows
        if row["train.loss"] == "logit_adjusted" and row["train.class_weights"] == "balanced"
    ]
    assert wrong
    assert [row for row in rows if row["state"] == "FAIL"] == wrong
    assert all("correct the same imbalance" in row["error"] for row in wrong)
    assert "the search goes on" in capfd.readouterr().err


@pytest.mark.chaos
def test_the_trials_of_a_killed_search_are_continued(tmp_path):
    """Killed once and stopped once in the middle of trials: each goes on in its folder with its settings."""
    write_tiny(tmp_path / "rows.tsv", rows_per_label=30)
    more = ["--trials", "3"]
    end(start(words(tmp_path, "whole", *more)))
    process = start(words(tmp_path, "killed", *more))
    wait_for(tmp_path / "killed" / "trial-001.log")
    process.kill()
    process.communicate()
    process = start(words(tmp_path, "killed", *more))
    wait_for(tmp_path / "killed" / "trial-002.log")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 128 + signal.SIGINT
    assert "the same command continues" in process.communicate()[1]
    end(start(words(tmp_path, "killed", *more)))
    assert trials(tmp_path / "killed") == trials(tmp_path / "whole")
    figures = [
        json.loads((tmp_path / name / "search.json").read_text(encoding="utf-8"))
        for name in ("whole", "killed")
    ]
    assert figures[0] == figures[1]
    folders = sorted(path.name for path in (tmp_path / "killed").glob("trial-*") if path.is_dir())
    assert folders == ["trial-000", "trial-001", "trial-002"]


@pytest.mark.chaos
def test_two_processes_share_the_trials(tmp_path):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=20)
    arguments = words(tmp_path, "search", "--trials", "4")
    processes = [start(arguments) for _ in range(2)]
    outputs = [process.communicate(timeout=500) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    rows = trials(tmp_path / "search")
    assert [(row["trial"], row["state"]) for row in rows] == [(str(n), "COMPLETE") for n in range(4)]
    trained = [
        {line.split(":")[0] for line in errors.splitlines() if "training, its" in line}
        for _, errors in outputs
    ]
    assert not trained[0] & trained[1]
    assert {f"trial-00{n}" for n in range(4)} < trained[0] | trained[1]
    assert sum("optimism of the search" in out for out, _ in outputs) >= 1
    assert len(list((tmp_path / "search").glob("final-*.log"))) == 1


def wait_for(path: Path) -> None:
    """Wait until a file has something in it."""
    deadline = time.monotonic() + 240
    while not (path.exists() and os.path.getsize(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()
