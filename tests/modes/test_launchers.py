"""The ways in which users start the scripts: no launcher at all, and Accelerate's, DeepSpeed's and Horovod's.

python -m pytest tests/modes/test_launchers.py -m "slow or not slow"
"""

import json
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest

from app.modes import load_mode
from app.modes.group import launch_command
from app.run import main
from tests.processes import finish
from tests.ranks import SMALL, run_alone, settings

ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch"]
DEEPSPEED = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators=2", "run_deepspeed.py"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def run(command: list[str], folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """Train three steps with a command; what it leaves is in `folder`."""
    shared = ["--output.dir", folder / "run", "--data.cache_dir", folder / "cache", "--train.max_steps", 3]
    shared += ["--train.device", "cpu", "--train.precision", "fp32"]
    shared += [f"--model.config.{key}={value}" for key, value in SMALL.items()]
    return finish([*command, *map(str, shared), *words], **environment)


def assert_two_trained(done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 process(es)" in done.stderr + done.stdout
    assert done.stdout.count("Report on test") == 1


def need(mode: str) -> None:
    if reason := load_mode(mode).unavailable_reason():
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        *((mode, {}) for mode in ("ddp", "fsdp", "accelerate", "dp", "horovod")),
        ("deepspeed", {"deepspeed__stage": 2, "deepspeed__config": "{}/offload.json"}),
        ("deepspeed", {"deepspeed__stage": 1, "train__precision": "bf16"}),
    ],
)
def test_without_a_launcher_one_process_trains(mode, changes, data, tmp_path):
    need(mode)
    offload = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
    (tmp_path / "offload.json").write_text(json.dumps(offload), encoding="utf-8")
    changes = {key: str(value).format(tmp_path) for key, value in changes.items()}
    log, argv = tmp_path / "log", settings(data, tmp_path / "run", train__max_steps=3, **changes)
    assert run_alone(mode, argv, log) == 0, log.read_text()[-3000:]
    said = log.read_text()
    assert "1 process(es)" in said
    assert said.count("Report on test") == 1
    assert "compil" not in said.lower(), "nothing may be compiled at the start"


@pytest.mark.slow
def test_accelerate_launch_with_two_processes(tmp_path):
    command = [*ACCELERATE, *split("--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no")]
    command += ["--dynamo_backend", "no", "run_accelerate.py"]
    assert_two_trained(run(command, tmp_path, ACCELERATE_USE_CPU="1"))


@pytest.mark.slow
def test_the_launcher_of_deepspeed_stage_3_and_a_plain_checkpoint(tmp_path, capsys):
    from transformers import pipeline

    from tests.verbs import predict

    need("deepspeed")
    assert_two_trained(run(DEEPSPEED, tmp_path, "--deepspeed.stage", "3"))
    assert predict(["--checkpoint", str(tmp_path / "run"), "今天真开心"]) == 0
    label = pipeline("text-classification", model=str(tmp_path / "run"))("今天真开心")[0]["label"]
    assert label in capsys.readouterr().out


@pytest.mark.slow
def test_the_launcher_of_horovod(tmp_path):
    need("horovod")
    command = launch_command("horovodrun", ["run_horovod.py"], 2)
    assert_two_trained(run(command, tmp_path, "--train.precision", "bf16"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "command", "said"),
    [
        ("horovod", TORCHRUN, "but Horovod has 1, each training alone"),
    ],
)
def test_a_launcher_under_which_processes_would_train_alone_is_refused(tmp_path, mode, command, said):
    need(mode)
    done = run([*command, f"run_{mode}.py"], tmp_path)
    assert done.returncode != 0
    assert f"2 processes were asked for, {said}" in done.stderr


def test_without_horovod_one_line_says_how_to_install_it(tmp_path):
    # Hides what may be installed, as an install without torch does
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")
    done = finish([sys.executable, "run_horovod.py"], PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "install it: bash scripts/install_horovod.sh" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nprocs_belongs_to_spawn(capsys):
    assert main("ddp", "", ["--nprocs", "2"]) == 2
    assert "run_mp.py" in capsys.readouterr().err
