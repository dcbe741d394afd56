"""When a rank dies: all others end within 15 seconds, nothing is left running, the last training state is
whole.

python -m pytest tests/runtime/test_dead_ranks.py -m chaos
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from app.checkpoints.training_state import load_training_state
from app.modes import load_mode
from app.modes.group import launch_command
from tests.processes import finish
from tests.ranks import ROOT, SMALL

pytestmark = pytest.mark.chaos
SECONDS = 15
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
DEEPSPEED = [sys.executable, "-m", "deepspeed.launcher.runner"]
OLD_LAUNCHER = [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2"]
# One mode for each launcher; tests/runtime/test_chaos.py has the ranks of the others
COMMANDS = {
    "ddp": [*TORCHRUN, "run_ddp.py"],
    "mp": [sys.executable, "run_mp.py", "--nprocs", "2"],
    "deepspeed": [
        sys.executable,
        "-m",
        "deepspeed.launcher.runner",
        "--num_accelerators=2",
        "run_deepspeed.py",
    ],
    "horovod": launch_command("horovodrun", ["run_horovod.py"], 2),
}


def settings(folder: Path, epochs: int) -> list[str]:
    """Return the settings of a job of 60 steps an epoch that writes a training state every 10 steps."""
    values = {"output.dir": folder, "output.trackers": "[]", "data.cache_dir": folder.parent / "cache"}
    values |= {"train.device": "cpu", "train.epochs": epochs, "train.save_every": 10}
    values |= {"train.eval_every": 1000} | {f"model.config.{key}": size for key, size in SMALL.items()}
    return [f"--{key}={value}" for key, value in values.items()]


def said(folder: Path) -> str:
    return (folder.parent / "log").read_text()


def start(command: list[str], folder: Path, epochs: int = 200) -> tuple:
    """Return a run that has written a training state, and the processes below its launcher."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    environment |= {"PYTHONPATH": str(ROOT)}
    log = (folder.parent / "log").open("w")
    options = {"cwd": ROOT, "env": environment, "stdout": log, "stderr": log, "start_new_session": True}
    run = subprocess.Popen([*command, *settings(folder, epochs)], **options)
    deadline = time.monotonic() + 120
    while not list((folder / "state").glob("step-*")):
        assert run.poll() is None, said(folder)[-3000:]
        assert time.monotonic() < deadline, "no training state was written"
        time.sleep(0.1)
    return run, psutil.Process(run.pid).children(recursive=True)


def ranks(run: subprocess.Popen) -> dict[int, psutil.Process]:
    """Return the processes of the ranks below a launcher."""
    by_rank = {}
    for process in psutil.Process(run.pid).children(recursive=True):
        with suppress(psutil.Error):
            rank = process.environ().get("RANK", process.environ().get("HOROVOD_RANK"))
            if rank is None and "run_mp.py" in run.args and "spawn_main" in " ".join(process.cmdline()):
                # The environment of a spawned rank is set after its start, where psutil cannot see it.
                rank = len(by_rank)
            if rank is not None and "resource_tracker" not in " ".join(process.cmdline()):
                by_rank.setdefault(int(rank), process)
    return by_rank


def wait_for_end(run: subprocess.Popen, family: list[psutil.Process], seconds: float = SECONDS) -> None:
    """Wait for the launcher and all its processes; fails where one is left."""
    started = time.monotonic()
    run.wait(timeout=seconds)
    _, alive = psutil.wait_procs(family, timeout=max(0.1, seconds - (time.monotonic() - started)))
    assert not alive, f"still running: {alive}"


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "run"
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(tmp_path) in " ".join(process.cmdline()):
                process.kill()


@pytest.mark.parametrize("mode", COMMANDS)
def test_kill_9_of_a_rank_ends_all(mode, folder):
    if reason := load_mode(mode).unavailable_reason():
        pytest.skip(reason)
    run, family = start(COMMANDS[mode], folder)
    ranks(run)[1].kill()
    wait_for_end(run, family)
    assert run.returncode != 0
    state = load_training_state(folder)
    assert state.progress.step % 10 == 0
    assert state.weights
    killed = r"SIGKILL|(Exit code:|status code) (-9|137)|exits with return code = -9"
    assert re.search(killed, said(folder)), said(folder)[-3000:]


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_control_c_ends_all(mode, folder):
    run, family = start(COMMANDS[mode], folder)
    os.killpg(run.pid, signal.SIGINT)
    wait_for_end(run, family)
    assert run.returncode != 0
    assert load_training_state(folder)


@pytest.mark.parametrize("mode", ["ddp", "mp", "horovod"])
def test_a_killed_launcher_leaves_no_orphan(mode, folder):
    if reason := load_mode(mode).unavailable_reason():
        pytest.skip(reason)
    run, family = start(COMMANDS[mode], folder)
    run.kill()
    wait_for_end(run, family)


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_an_exception_on_one_rank_is_the_last_thing_printed(mode, folder):
    """For example, rank 1 cannot reach the disk of its run folder: here a subclass of the mode raises on rank
    1 at step 12."""
    launcher = TORCHRUN if mode == "ddp" else [sys.executable]
    run, family = start([*launcher, str(ROOT / "tests/run/disturbed_run.py"), "fail", mode], folder)
    wait_for_end(run, family)
    assert run.returncode != 0
    printed = said(folder)
    assert "Traceback" in printed
    assert printed.rindex("RuntimeError: rank 1 gives up") > printed.rindex("step ")
    assert "leaked" not in printed
    assert load_training_state(folder)


def old_launcher(*words: str) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return [*OLD_LAUNCHER, f"--master_port={probe.getsockname()[1]}", *words, "run_ddp.py"]


def test_torchrun_restarts_and_the_run_resumes(folder):
    """kill -9 of a rank under --max-restarts=1: the job ends well, with the weights of a job that was never
    stopped (and that torch.distributed.launch --use_env started)."""
    run, _ = start([*TORCHRUN, "--max-restarts=1", "run_ddp.py"], folder, epochs=4)
    ranks(run)[1].kill()
    assert run.wait(timeout=180) == 0, said(folder)[-3000:]
    assert "Resuming from step" in (folder / "train.log").read_text()
    whole, _ = start(old_launcher("--use_env"), folder.with_name("whole"), epochs=4)
    assert whole.wait(timeout=180) == 0
    one, other = (load_file(folder.with_name(name) / "model.safetensors") for name in ("run", "whole"))
    assert all((one[name] == other[name]).all() for name in other)


def test_torch_distributed_launch(folder):
    """The old launcher passes --local-rank, without --use_env."""
    done = finish([*old_launcher(), *settings(folder, 1), "--train.max_steps", "5"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Report on test") == 1
    assert "2 process(es)" in done.stderr


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_sigterm_to_the_launcher_saves(mode, folder):
    """As Slurm and Kubernetes send it: all ranks finish the same step and save; the run resumes from
    there."""
    run, family = start(COMMANDS[mode], folder)
    os.kill(run.pid, signal.SIGTERM)
    wait_for_end(run, family)
    # Torchrun ends with its own status
    assert run.returncode == (143 if mode == "mp" else 1)
    step = re.search(r"Stopped by SIGTERM after step (\d+); resume with --resume auto\.", said(folder))
    assert step, said(folder)[-3000:]
    assert load_training_state(folder).progress.step == int(step[1])
    assert not list((folder / "state").glob(".step-*"))


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_a_stopped_rank_ends_all(mode, folder):
    """SIGSTOP of a rank: the other says so, and the launcher kills the stopped one (torchrun after 30
    seconds)."""
    run, family = start([*COMMANDS[mode], "--train.timeout", "10"], folder)
    ranks(run)[1].suspend()
    wait_for_end(run, family, seconds=60)
    assert run.returncode != 0
    assert "rank 1 has not responded for 10 seconds" in said(folder)
    assert load_training_state(folder)
