"""The verbs that run many modes, verify and benchmark: their options, and both in real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from app.commands.mode_options import PlannedMode, plan_modes
from app.commands.verify import render
from app.errors import InputError
from app.run.modes.equivalence import Outcome
from app.strategies import strategy_names
from tests.tiny import write_tiny

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "--model.config.hidden_size=32",
    "--model.config.num_hidden_layers=1",
    "--model.config.intermediate_size=64",
]


def run(verb: str, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / verb), *arguments, *TINY, "--train.device", "cpu"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_single_is_run_first_and_every_mode_once():
    planned = plan_modes(["mp", "single", "ddp", "mp"], 3, "cpu")
    assert [(mode.name, mode.processes) for mode in planned] == [("single", 1), ("ddp", 3), ("mp", 3)]
    every_mode = [mode.name for mode in plan_modes(None, None, "cpu")]
    assert (every_mode[0], sorted(every_mode)) == ("single", sorted(strategy_names()))


@pytest.mark.parametrize(("devices", "processes", "planned"), [(0, None, 2), (4, None, 4), (4, 3, 3)])
def test_processes_are_those_asked_for_or_the_devices_or_two(monkeypatch, devices, processes, planned):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    assert plan_modes(["ddp", "dp"], processes, "auto") == [
        PlannedMode("ddp", planned, None),
        PlannedMode("dp", 1, None),
    ]


def test_more_processes_than_devices_are_not_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    (ddp,) = plan_modes(["ddp"], 2, "cuda")
    assert ddp.unavailable == "2 processes need as many CUDA devices, this machine has 1"
    (ddp,) = plan_modes(["ddp"], 2, "cpu")
    assert ddp.unavailable is None


def test_no_processes_are_refused():
    with pytest.raises(InputError, match="--processes must be at least 1, found 0"):
        plan_modes(["ddp"], 0, "cpu")


@pytest.mark.parametrize("script", ["verify_modes.py", "benchmark_modes.py"])
def test_an_unknown_mode_is_refused(script):
    done = run(script, "--modes", "ddpp")
    assert done.returncode == 2
    assert done.stderr == f"error: --modes: there is no mode ddpp (known: {', '.join(strategy_names())})\n"


def test_the_table_shows_a_mode_that_was_not_run():
    lines = render(
        [Outcome("single", 1, 0.0, 0.0, 1e-7, 0.0, 4, 4, "PASS"), Outcome("fsdp", 2, reason="no device")]
    )
    first, second = (line.split() for line in lines.splitlines()[1:])
    assert first == ["single", "1", "0.0e+00", "0.0e+00", "1.0e-07", "0.0e+00", "4", "of", "4", "PASS"]
    assert second == ["fsdp", "2", "-", "-", "-", "-", "-", "FAIL", "no", "device"]


@pytest.mark.slow
def test_modes_agree_on_the_sample_set_in_any_folder(tmp_path):
    """Each process runs this package, and not what the working folder has under its name."""
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')")
    options = ["--steps", "4", "--modes", "single", "ddp", "mp", "--output", "table.json"]
    done = run("verify_modes.py", *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [(row["mode"], row["processes"], row["verdict"], row["rows"]) for row in rows] == [
        ("single", 1, "PASS", 302),
        ("ddp", 2, "PASS", 302),
        ("mp", 2, "PASS", 302),
    ]


@pytest.mark.slow
def test_a_job_that_fails_says_why():
    done = run("verify_modes.py", "--steps", "2", "--modes", "ddp", "--train.class_weights", "[1,2]")
    assert done.returncode == 2
    assert "train.class_weights must be 6 numbers" in done.stderr


@pytest.mark.slow
def test_the_table_of_modes_on_the_command_line(tmp_path):
    pytest.importorskip("matplotlib")
    output, chart = tmp_path / "modes.json", tmp_path / "modes.png"
    words = ["--modes", "dp", "single", "--output", str(output), "--chart", str(chart)]
    data = [
        "--data.train",
        str(write_tiny(tmp_path / "rows.tsv")),
        "--data.cache_dir",
        "cache",
        "--train.epochs",
        "1",
    ]
    done = run("benchmark_modes.py", *words, *data, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text())
    assert [timing["mode"] for timing in report["modes"]] == ["single", "dp"]
    assert len(report["rounds"]) == 1
    assert all(timing["rows_per_second"] > 0 and timing["memory_mib"] > 100 for timing in report["modes"])
    assert done.stdout.splitlines()[0].split()[:2] == ["mode", "processes"]
    assert chart.read_bytes().startswith(b"\x89PNG")
