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
from app.modes import MODES, load_mode
from app.modes.group import launch_command
from tests.processes import finish
from tests.ranks import ROOT, SMALL

pytestmark = pytest.mark.chaos
SECONDS = 15
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
DEEPSPEED = [sys.executable, "-m", "deepspeed.launcher.runner"]
OLD_LAUNCHER = [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2"]
# One mode for each launcher; tests/runtime/test_chaos.py has the ranks of the others
COMMANDS = {
    "ddp": [*TORCHRUN, "--standalone", "run_ddp.py"],
    "mp": [sys.executable, "run_mp.py", "--nprocs", "2"],
    "deepspeed launcher": [*DEEPSPEED, "--num_accelerators=2", "run_deepspeed.py"],
    "horovod": launch_command("horovodrun", ["run_horovod.py"], 2),
}


def settings(folder: Path, epochs: int) -> list[str]:
    """Return the settings of a job of 60 steps an epoch that writes a training state every 10 steps."""
    values = {"output.dir": folder, "output.trackers": "[]", "data.cache_dir": folder.parent / "cache"}
    values |= {"train.device": "cpu", "train.epochs": epochs, "train.save_every": 10}
    values |= {"train.eval_every": 1000} | {f"model.config.{key}": size for key, size in SMALL.items()}
    return [f"--{key}={value}" for key, value in values.items()]


def start(mode: str, folder: Path, epochs: int = 200) -> subprocess.Popen:
    # "deepspeed launcher" is DeepSpeed too
    name = mode.split()[0]
    if name in MODES and (reason := load_mode(name).unavailable_reason()):
        pytest.skip(reason)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    environment |= {"PYTHONPATH": str(ROOT)}
    log = (folder.parent / "log").open("w")
    command = [*COMMANDS.get(mode, [mode]), *settings(folder, epochs)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
    )


def wait_for_state(run: subprocess.Popen, folder: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not list((folder / "state").glob("step-*")):
        assert run.poll() is None, (folder.parent / "log").read_text()[-3000:]
        assert time.monotonic() < deadline, "no training state was written"
        time.sleep(0.1)


def started(mode: str, folder: Path) -> tuple[subprocess.Popen, list[psutil.Process]]:
    """Return a run that has written a training state, and the processes below its launcher."""
    run = start(mode, folder)
    wait_for_state(run, folder)
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


def wait_for_end(run: subprocess.Popen, family: list[psutil.Process]) -> float:
    """Wait for the launcher and all its processes; returns the seconds it took, and fails where one is
    left."""
    started = time.monotonic()
    run.wait(timeout=SECONDS)
    _, alive = psutil.wait_procs(family, timeout=max(0.1, SECONDS - (time.monotonic() - started)))
    assert not alive, f"still running: {alive}"
    return time.monotonic() - started


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "run"
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(tmp_path) in " ".join(process.cmdline()):
                process.kill()


@pytest.mark.parametrize("mode", COMMANDS)
def test_kill_9_of_a_rank_ends_all(mode, folder):
    run, family = started(mode, folder)
    ranks(run)[1].kill()
    wait_for_end(run, family)
    assert run.returncode != 0
    state = load_training_state(folder)
    assert state.progress.step % 10 == 0
    assert state.weights
    said = (folder.parent / "log").read_text()
    killed = r"SIGKILL|(Exit code:|status code) (-9|137)|exits with return code = -9"
    assert re.search(killed, said), said[-3000:]


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_control_c_ends_all(mode, folder):
    run, family = started(mode, folder)
    os.killpg(run.pid, signal.SIGINT)
    wait_for_end(run, family)
    assert run.returncode != 0
    assert load_training_state(folder)


@pytest.mark.parametrize("mode", ["ddp", "mp", "horovod"])
def test_a_killed_launcher_leaves_no_orphan(mode, folder):
    run, family = started(mode, folder)
    run.kill()
    wait_for_end(run, family)


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_an_exception_on_one_rank_is_the_last_thing_printed(mode, folder):
    """For example, rank 1 cannot reach the disk of its run folder: here a subclass of the mode raises on rank
    1 at step 12."""
    launcher = [*TORCHRUN, "--standalone"] if mode == "ddp" else [sys.executable]
    COMMANDS[f"{mode} failing"] = [*launcher, str(ROOT / "tests/run/disturbed_run.py"), "fail", mode]
    run, family = started(f"{mode} failing", folder)
    wait_for_end(run, family)
    assert run.returncode != 0
    printed = (folder.parent / "log").read_text()
    assert "Traceback" in printed
    assert printed.rindex("RuntimeError: rank 1 gives up") > printed.rindex("step ")
    assert "leaked" not in printed
    assert load_training_state(folder)


def test_torchrun_restarts_and_the_run_resumes(folder):
    """kill -9 of a rank under --max-restarts=1: the job ends well, with the weights of a job that was never
    stopped (and that torch.distributed.launch --use_env started)."""
    COMMANDS["restart"] = [*TORCHRUN, "--standalone", "--max-restarts=1", "run_ddp.py"]
    run = start("restart", folder, epochs=4)
    wait_for_state(run, folder)
    ranks(run)[1].kill()
    assert run.wait(timeout=180) == 0, (folder.parent / "log").read_text()[-3000:]
    assert "Resuming from step" in (folder / "train.log").read_text()
    COMMANDS["old launcher"] = [*OLD_LAUNCHER, f"--master_port={free_port()}", "--use_env", "run_ddp.py"]
    whole = start("old launcher", folder.parent / "whole", epochs=4)
    assert whole.wait(timeout=180) == 0
    stopped, never_stopped = (
        load_file(path / "model.safetensors") for path in (folder, folder.parent / "whole")
    )
    assert all((stopped[name] == never_stopped[name]).all() for name in never_stopped)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def test_torch_distributed_launch(tmp_path):
    """The old launcher passes --local-rank, without --use_env."""
    command = [*OLD_LAUNCHER, f"--master_port={free_port()}"]
    command += ["run_ddp.py", *settings(tmp_path / "run", 1), "--train.max_steps", "5"]
    done = finish(command)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Report on test") == 1
    assert "2 process(es)" in done.stderr


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_sigterm_to_the_launcher_saves(mode, folder):
    """As Slurm and Kubernetes send it: all ranks finish the same step and save; the run resumes from
    there."""
    run, family = started(mode, folder)
    os.kill(run.pid, signal.SIGTERM)
    wait_for_end(run, family)
    # Torchrun ends with its own status
    assert run.returncode == (143 if mode == "mp" else 1)
    said = (folder.parent / "log").read_text()
    step = re.search(r"Stopped by SIGTERM after step (\d+); resume with --resume auto\.", said)
    assert step, said[-3000:]
    assert load_training_state(folder).progress.step == int(step[1])
    assert not list((folder / "state").glob(".step-*"))


@pytest.mark.parametrize("mode", ["ddp", "mp"])
def test_a_stopped_rank_ends_all(mode, folder):
    """SIGSTOP of a rank: the other says so, and the launcher kills the stopped one (torchrun after 30
    seconds)."""
    COMMANDS[f"{mode} timeout"] = [*COMMANDS[mode], "--train.timeout", "10"]
    run, family = started(f"{mode} timeout", folder)
    ranks(run)[1].suspend()
    run.wait(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    assert run.returncode != 0
    assert "rank 1 has not responded for 10 seconds" in (folder.parent / "log").read_text()
    assert load_training_state(folder)
