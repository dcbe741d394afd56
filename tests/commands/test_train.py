"""`python -m app train`: what the scripts do, in one process and in several."""

import os
import re
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.commands import run_verb
from app.modes import MODES
from app.run import main
from tests.processes import ROOT, finish
from tests.ranks import start_ranks

TINY = ["--model.name", "random", "--model.config.num_hidden_layers", "1", "--model.config.hidden_size", "16"]
TINY += ["--model.config.num_attention_heads", "2", "--train.max_steps", "3", "--train.device", "cpu"]
TINY += ["--data.limit", "60", "--model.dropout", "0", "--data.cache_dir", "cache"]


def largest_difference(folder: Path, other_folder: Path) -> float:
    """Return how far the weights of two runs are apart."""
    weights = load_file(folder / "model.safetensors")
    others = load_file(other_folder / "model.safetensors")
    return max((value - others[name]).abs().max().item() for name, value in weights.items())


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a run of the script, `script`."""
    folder = tmp_path_factory.mktemp("runs")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main("single", "", [*TINY, "--output.dir", "script"]) == 0
    finally:
        os.chdir(before)
    return folder


def test_it_trains_as_the_script_does(trained, monkeypatch):
    monkeypatch.chdir(trained)
    assert run_verb("train", [*TINY, "--output.dir", "verb"]) == 0
    assert largest_difference(trained / "script", trained / "verb") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--processes 2", "--processes must be 1 in mode single, which has one process, found 2; choose"),
        ("--processes 0 --mode mp", "must be at least 1, found 0"),
        ("--mode dpp", "there is no mode dpp (known: accelerate, ddp"),
        ("--mode ddp --train.epoch 3", "there is no setting 'train.epoch'; did you mean 'train.epochs'?"),
    ],
)
def test_what_it_cannot_do_is_said_before_a_process_is_started(capfd, words, message):
    assert run_verb("train", words.split()) == 2
    printed = capfd.readouterr().err
    assert printed.startswith("error: ")
    assert message in printed
    assert "Starting" not in printed


def test_the_help_names_every_mode(capsys):
    assert run_verb("train", ["--help"]) == 0
    line = re.search(r"--mode MODE +(.*)", capsys.readouterr().out)[1]
    assert sorted(re.findall(r"\w+", line)) == sorted([*MODES, "or"])


def test_under_a_launcher_it_is_a_rank(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run_verb("train", ["--mode", "ddp", "--processes", "2"]) == 2
    assert "a launcher has started this process" in capsys.readouterr().err
    assert run_verb("train", []) == 2
    assert "2 processes were asked for, but mode single has 1, each training alone" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "mp", "fsdp", "accelerate", "deepspeed", "horovod"])
def test_it_starts_the_processes_of_a_mode(trained, mode, monkeypatch):
    """From a forked process, which becomes the launcher; mp, which starts its own, from a shell."""
    if mode in ("deepspeed", "horovod"):
        pytest.importorskip(mode)
    words = ["--mode", mode, "--processes", "2", *TINY, "--output.dir", mode]
    if mode == "mp":
        command = [sys.executable, "-m", "app", "train", *words]
        done = finish(command, trained, status=0, PYTHONPATH=str(ROOT))
        printed = done.stderr + done.stdout
    else:
        monkeypatch.chdir(trained)
        log = trained / f"{mode}.log"
        statuses = start_ranks(run_verb, ("train", words), 1, log, is_alone=True, seconds=300)
        assert statuses == [0], log.read_text()
        printed = log.read_text()
    assert "2 processes, cpu" in printed
    assert printed.startswith("Starting 2 processes: ") == (mode != "mp")
    assert largest_difference(trained / "script", trained / mode) < 1e-4


@pytest.mark.slow
def test_a_launcher_starts_it_as_it_starts_the_script(trained):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = [*launcher, "-m", "app", "train", "--mode", "ddp", *TINY, "--output.dir", "launched"]
    done = finish(words, trained, status=0, PYTHONPATH=str(ROOT))
    assert "2 processes, cpu" in done.stdout + done.stderr
    assert largest_difference(trained / "script", trained / "launched") < 1e-4
