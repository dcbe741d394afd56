"""The modes to run, and the verb verify in real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from app.commands import run_verb
from app.commands.mode_options import PlannedMode, plan_modes
from app.commands.verify import render
from app.modes import mode_names
from app.runs.verify import KINDS, Comparison

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "--model.config.hidden_size=32",
    "--model.config.num_hidden_layers=1",
    "--model.config.intermediate_size=64",
    "--train.device=cpu",
    "--train.precision=fp32",
]


def run(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess:
    command = [sys.executable, *words, *TINY]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_single_is_run_first_and_every_mode_once():
    planned = plan_modes(["mp", "single", "ddp", "mp"], 3, "cpu")
    assert [(mode.name, mode.processes) for mode in planned] == [("single", 1), ("ddp", 3), ("mp", 3)]
    every_mode = [mode.name for mode in plan_modes(None, None, "cpu")]
    assert (every_mode[0], sorted(every_mode)) == ("single", sorted(mode_names()))


@pytest.mark.parametrize(("devices", "processes", "planned"), [(0, None, 2), (4, None, 4), (4, 3, 3)])
def test_processes_are_those_asked_for_or_the_devices_or_two(monkeypatch, devices, processes, planned):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: devices)
    assert plan_modes(["ddp", "dp"], processes, "auto") == [
        PlannedMode("ddp", planned, None),
        PlannedMode("dp", 1, None),
    ]


def test_more_processes_than_devices_are_not_run(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    (ddp,) = plan_modes(["ddp"], 2, "cuda")
    assert ddp.unavailable == "2 processes need as many accelerators, this machine has 1"
    (ddp,) = plan_modes(["ddp"], 2, "cpu")
    assert ddp.unavailable is None


def test_an_unknown_mode_and_no_processes_are_refused(capsys):
    assert run_verb("verify", ["--processes", "0"]) == 2
    assert "--processes must be at least 1, found 0" in capsys.readouterr().err
    assert run_verb("verify", ["--modes", "ddpp"]) == 2
    known = ", ".join(mode_names())
    assert capsys.readouterr().err == f"error: there is no mode ddpp (known: {known})\n"


def test_the_table_shows_the_proof_of_each_mode():
    differences = dict.fromkeys(KINDS, 1e-15)
    ddp = Comparison("ddp", 2, "float64", differences, None, None, 33, 33, "PASS")
    zero = Comparison("deepspeed", 2, "fp32", differences, differences, 0.5, 33, 33, "PASS")
    lines = render([ddp, zero, Comparison("fsdp", 2, verdict="not run", reason="no device")]).splitlines()
    first, second, third = (line.split() for line in lines[-3:])
    assert first == ["ddp", "2", "float64", *["1.0e-15"] * 4, "-", "33", "of", "33", "PASS"]
    assert second == ["deepspeed", "2", "fp32", *["1.0e-15"] * 4, "0.5", "33", "of", "33", "PASS"]
    assert third == ["fsdp", "2", "-", *["-"] * 6, "not", "run", "no", "device"]


@pytest.mark.slow
def test_modes_agree_on_the_sample_set_in_any_folder(tmp_path):
    """Each process runs this package, and not what the working folder has under its name."""
    pytest.importorskip("deepspeed")
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')")
    script = str(ROOT / "verify_modes.py")
    done = run(script, "--modes", "deepspeed", "--output", "table.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    says = (
        "Verifying that 2 modes train the same model: 3 steps of bert with random weights on the sample set"
    )
    assert done.stdout.startswith(says)
    assert [line.split(",")[0] for line in done.stderr.splitlines()] == ["single", "deepspeed"]
    single, row = json.loads((tmp_path / "table.json").read_text())
    assert (single["mode"], single["verdict"]) == ("single", "reference")
    assert (row["mode"], row["precision"], row["verdict"], row["rows"]) == ("deepspeed", "fp32", "PASS", 33)
    assert row["control_ratio"] < 10


@pytest.mark.slow
def test_a_job_that_fails_says_why(capfd):
    words = ["--steps", "2", "--modes", "ddp", "--train.class_weights", "[1,2]", "--train.device", "cpu"]
    assert run_verb("verify", [*words, *TINY]) == 2
    assert "train.class_weights must be 6 numbers" in capfd.readouterr().err


def test_a_table_replaces_no_file(tmp_path, capsys):
    output = tmp_path / "table.json"
    output.write_text("{}")
    assert run_verb("verify", ["--modes", "single", "--output", str(output)]) == 2
    assert f"--output {output}: there is such a file; choose another name" in capsys.readouterr().err
    assert output.read_text() == "{}"
