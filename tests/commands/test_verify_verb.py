"""`python -m app verify`: the modes to run, and real processes: python -m pytest
tests/commands/test_verify_verb.py"""

import sys
from shlex import split

import pytest
import torch

from app.commands import run_verb
from app.modes import MODES
from app.runs.series import plan_mode
from tests.processes import ROOT, finish

TINY = split(
    "--model.config.hidden_size=32 --model.config.num_hidden_layers=1 --model.config.intermediate_size=64 "
    "--train.device=cpu --train.precision=fp32"
)


@pytest.mark.parametrize(("devices", "processes", "planned"), [(0, None, 2), (4, None, 4), (4, 3, 3)])
def test_processes_are_those_asked_for_or_the_devices_or_two(monkeypatch, devices, processes, planned):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: devices)
    assert plan_mode("ddp", processes, "auto") == (planned, "")
    assert plan_mode("dp", processes, "auto") == (1, "")


def test_more_processes_than_devices_are_not_run(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    unavailable = "2 processes need as many accelerators, this machine has 1"
    assert plan_mode("ddp", 2, "cuda") == (2, unavailable)
    assert plan_mode("ddp", 2, "cpu") == (2, "")


def test_an_unknown_mode_and_no_processes_are_refused(capsys):
    assert run_verb("verify", ["--processes", "0"]) == 2
    assert "--processes must be at least 1, found 0" in capsys.readouterr().err
    assert run_verb("verify", ["--modes", "ddpp"]) == 2
    known = ", ".join(MODES)
    assert capsys.readouterr().err == f"error: there is no mode ddpp (known: {known})\n"


@pytest.mark.slow
def test_modes_agree_on_the_sample_set_in_any_folder(tmp_path):
    """Each process runs this package, and not what the working folder has under its name."""
    pytest.importorskip("deepspeed")
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')")
    command = [sys.executable, str(ROOT / "verify_modes.py"), "--modes", "deepspeed", "ddp", *TINY]
    done = finish(command, tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr + done.stdout
    assert [line.split(",")[0] for line in done.stderr.splitlines()] == ["single", "ddp", "deepspeed"]
    _heading, single, ddp, deepspeed = (line.split() for line in done.stdout.splitlines())
    assert single == ["single", "1", *["-"] * 7, "reference"]
    assert (ddp[:3], ddp[7:]) == (["ddp", "2", "float64"], ["-", "33", "of", "33", "PASS"])
    assert (deepspeed[:3], deepspeed[8:]) == (["deepspeed", "2", "fp32"], ["33", "of", "33", "PASS"])
    assert max(map(float, ddp[3:7])) < 1e-9 < max(map(float, deepspeed[3:7]))
    assert float(deepspeed[7]) < 10


@pytest.mark.slow
def test_a_job_that_fails_says_why(capfd):
    words = ["--steps", "2", "--modes", "ddp", "--train.class_weights", "[1,2]"]
    assert run_verb("verify", [*words, *TINY]) == 2
    assert "train.class_weights must be 6 numbers" in capfd.readouterr().err
