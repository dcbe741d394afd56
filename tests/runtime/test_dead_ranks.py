"""When a rank dies under a real launcher: all others end within 15 seconds, nothing is left running, the last
training state is whole. Machines that leave a running job and join it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from app.checkpoints.training_state import load_training_state
from app.modes.launch import launch_command
from tests import ranks
from tests.processes import ROOT, wait_until
from tests.ranks import OLD_LAUNCHER, PYTHON, TORCHRUN, check_run, largest_difference, need

pytestmark = pytest.mark.chaos
# One mode for each launcher; tests/runtime/test_chaos.py has the ranks of the others
COMMANDS = {
    "ddp": [*TORCHRUN, "run_ddp.py"],
    "mp": [sys.executable, "run_mp.py", "--nprocs", "2"],
    "deepspeed": [*PYTHON, "deepspeed.launcher.runner", "--num_accelerators=2", "run_deepspeed.py"],
    "horovod": launch_command("horovodrun", ["run_horovod.py"], 2),
}
FORKED = [sys.executable, "tests/ranks.py", "nothing", "mp"]
BOTH = ("ddp", "mp")


def settings(data: list[str], folder: Path, **changes) -> list[str]:
    """Return the settings of a job of 3 steps an epoch that writes a training state every 10 steps."""
    values = {"output__resume": "never", "train__batch_size": 32}
    values |= {"train__learning_rate": 3e-5, "train__save_every": 10, "train__eval_every": 1000}
    return ranks.settings(data, folder, **values | changes)


def logs_of(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.parent.glob("log*"))


def start(command: list[str], folder: Path, log: str = "log") -> subprocess.Popen:
    env = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    env |= {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    with (folder.parent / log).open("w") as file:
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=file, stderr=file, start_new_session=True)


def start_run(command: list[str], data: list[str], folder: Path, **changes) -> tuple:
    """Return a run that has written a training state, and the processes below its launcher."""
    run = start([*command, *settings(data, folder, **{"train__epochs": 4000} | changes)], folder)
    state = folder / "state"
    wait_until(lambda: list(state.glob("step-*")) or run.poll() is not None, 120, partial(logs_of, folder))
    assert run.poll() is None, logs_of(folder)[-3000:]
    return run, psutil.Process(run.pid).children(recursive=True)


def process_of(rank: int, run: subprocess.Popen) -> psutil.Process:
    by_rank = {}
    for process in psutil.Process(run.pid).children(recursive=True):
        with suppress(psutil.Error):
            number = process.environ().get("RANK", process.environ().get("HOROVOD_RANK"))
            if number is None and {"run_mp.py", "mp"} & {*run.args}:
                # The environment of a rank of mp is set after its start, where psutil cannot see it.
                number = len(by_rank)
            if number is not None and "resource_tracker" not in " ".join(process.cmdline()):
                by_rank.setdefault(int(number), process)
    return by_rank[rank]


def wait_for_end(run: subprocess.Popen, family: list[psutil.Process], end: float) -> None:
    run.wait(timeout=end - time.monotonic())
    _, alive = psutil.wait_procs(family, timeout=max(0.1, end - time.monotonic()))
    assert not alive, f"still running: {alive}"


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "run"
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(tmp_path) in " ".join(process.cmdline()):
                process.kill()


# The signal, what gets it, within how many seconds all must have ended, what is said, and the modes
SAVED = r"Stopped by SIGTERM after step (\d+); resume with --resume auto\."
KILLED = r"SIGKILL|(Exit code:|status code) (-9|137)|exits with return code = -9"
ENDS = [
    *((signal.SIGKILL, "rank", 15, KILLED, [mode]) for mode in COMMANDS),
    *((signal.SIGKILL, "launcher", 15, "", [mode]) for mode in ("ddp", "mp", "horovod")),
    # Torchrun kills a stopped rank after 30 seconds
    (signal.SIGSTOP, "rank", 60, "rank 1 has not responded for 10 seconds", BOTH),
    # As Ctrl-C sends it
    *((signal.SIGINT, "all", 15, "", [mode]) for mode in BOTH),
    # As Slurm and Kubernetes send it: all ranks finish the same step and save
    *((signal.SIGTERM, "launcher", 15, SAVED, [mode]) for mode in BOTH),
]


@pytest.mark.parametrize(
    ("number", "hit", "seconds", "pattern", "modes"),
    [pytest.param(*case, id=f"{case[0].name} to {case[1]}, {', '.join(case[4])}") for case in ENDS],
)
def test_a_signal_to_one_ends_all(number, hit, seconds, pattern, modes, data, folder):
    runs = []
    for mode in modes:
        need(mode)
        place = folder.with_name(mode) / "run"
        place.parent.mkdir()
        command = FORKED if mode == "mp" and pattern != KILLED else COMMANDS[mode]
        run, family = start_run(command, data, place, train__timeout=10)
        if hit == "all":
            os.killpg(run.pid, number)
        else:
            (process_of(1, run) if hit == "rank" else run).send_signal(number)
        runs.append((mode, place, run, family, time.monotonic() + seconds))
    for mode, folder, run, family, end in runs:
        wait_for_end(run, family, end)
        assert run.returncode != 0
        message = re.search(pattern, logs_of(folder))
        assert message, logs_of(folder)[-3000:]
        state = load_training_state(folder)
        assert state.weights
        if number == signal.SIGTERM:
            # Torchrun ends with its own status
            assert run.returncode == (143 if mode == "mp" else 1)
            assert state.progress.step == int(message[1])
            assert not list((folder / "state").glob(".step-*"))


@pytest.mark.parametrize("mode", BOTH)
def test_an_exception_on_one_rank_is_the_last_thing_printed(mode, data, folder):
    """For example, rank 1 cannot reach the disk of its run folder: here it raises at step 12."""
    launcher = TORCHRUN if mode == "ddp" else [sys.executable]
    run, family = start_run([*launcher, str(ROOT / "tests/ranks.py"), "fail", mode], data, folder)
    wait_for_end(run, family, time.monotonic() + 15)
    assert run.returncode != 0
    printed = logs_of(folder)
    assert "Traceback" in printed
    assert printed.rindex("RuntimeError: a rank gives up") > printed.rindex("step ")
    assert "leaked" not in printed
    assert load_training_state(folder)


def test_torchrun_restarts_and_the_run_resumes(data, folder):
    """kill -9 of a rank under --max-restarts=1 of torchrun, by its old name: the job ends well, with the
    weights of a job that was never stopped."""
    command = [*OLD_LAUNCHER, "--use_env", "--max-restarts=1", "run_ddp.py"]
    run, _ = start_run(command, data, folder, train__epochs=80)
    process_of(1, run).kill()
    assert run.wait(timeout=180) == 0, logs_of(folder)[-3000:]
    assert "Resuming from step" in (folder / "train.log").read_text()
    whole = folder.with_name("whole")
    check_run("ddp", 2, settings(data, whole, train__epochs=80))
    weights = load_file(folder / "model.safetensors")
    expected = load_file(whole / "model.safetensors")
    assert all((weights[name] == expected[name]).all() for name in expected)


def test_a_machine_is_lost_and_another_joins(data, folder):
    """Each machine is an agent of torchrun; that of machine 0 hosts the rendezvous."""
    slow = folder.with_name("slow")
    whole = folder.with_name("whole")
    changes = {"train__epochs": 60, "train__save_every": 5, "train__timeout": 10, "model__dropout": 0}
    words = settings(data, folder, **changes, output__resume="auto")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def join(number: int) -> subprocess.Popen:
        command = [*PYTHON, "torch.distributed.run", "--nnodes=1:3", "--nproc_per_node=1", "--max-restarts=3"]
        command += ["--rdzv_backend=c10d", "--rdzv_id=elastic", "--local_addr=127.0.0.1"]
        command += [f"--rdzv_conf=last_call_timeout=3,keep_alive_interval=2,is_host={int(number == 0)}"]
        command += [f"--rdzv_endpoint=127.0.0.1:{port}", str(ROOT / "tests/ranks.py"), "hold", "ddp"]
        return start([*command, *words], folder, f"log{number}")

    def wait_for_steps(world_size: int, steps: int) -> int:
        """Wait until this many processes have trained and a state of at least so many steps is there."""

        def last_step() -> int:
            names = [path.name[5:] for path in (folder / "state").glob("step-*")]
            with suppress(OSError, ValueError, LookupError):
                last = json.loads((folder / "run_history.json").read_text(encoding="utf-8"))["starts"][-1]
                if last["processes"] == world_size and (step := max(map(int, names))) >= steps:
                    return step
            return 0

        return wait_until(last_step, 120, partial(logs_of, folder))

    slow.touch()
    first = join(0)
    second = join(1)
    step = wait_for_steps(2, 5)
    for process in [*psutil.Process(second.pid).children(recursive=True), second]:
        process.kill()
    second.wait()
    step = wait_for_steps(1, step + 5)
    third = join(2)
    wait_for_steps(2, step + 5)
    slow.unlink()
    assert [agent.wait(timeout=100) for agent in (first, third)] == [0, 0], logs_of(folder)
    assert logs_of(folder).count("Report on test") == 1

    check_run("single", 1, settings(data, whole, **changes))
    assert largest_difference(folder, whole) <= 1e-5
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    expected = json.loads((whole / "report.json").read_text(encoding="utf-8"))
    assert report["confusion_matrix"] == expected["confusion_matrix"]
    assert report["loss"] == pytest.approx(expected["loss"], abs=1e-5)
