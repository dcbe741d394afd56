"""Machines that leave a running job and join it, each an agent of torchrun: python -m pytest
tests/runtime/test_elastic.py -m chaos"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.ranks import ROOT, SMALL, largest_difference

pytestmark = pytest.mark.chaos
# seconds, for anything that must happen
PATIENT = 100


class Machines:
    """Starts agents; that of machine 0 hosts the rendezvous."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.agents = folder, {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self, number: int, settings: list[str]) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:3", "--nproc_per_node=1"]
        command += ["--max-restarts=3", "--rdzv_backend=c10d", "--rdzv_id=elastic", "--local_addr=127.0.0.1"]
        command += [f"--rdzv_conf=last_call_timeout=3,is_host={int(number == 0)}"]
        command += [f"--rdzv_endpoint=127.0.0.1:{self.port}", str(ROOT / "tests/run/disturbed_run.py")]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environment |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo"}
        with (self.folder / f"log{number}").open("w") as log:
            self.agents[number] = subprocess.Popen(
                [*command, *settings], cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    def lose(self, number: int) -> None:
        """Kill all processes of a machine."""
        # An agent that has finished, has no processes left
        with suppress(psutil.NoSuchProcess):
            agent = psutil.Process(self.agents[number].pid)
            for process in [agent, *agent.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        self.agents.pop(number).wait()

    def said(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-2500:]}" for path in self.folder.glob("log*")
        )


@pytest.fixture
def machines(tmp_path):
    machines = Machines(tmp_path)
    yield machines
    for number in list(machines.agents):
        machines.lose(number)


def wait_for(machines: Machines, run: Path, world_size: int, steps: int) -> int:
    """Wait until this many processes have trained and a state of at least so many steps is there; return its
    step."""
    deadline = time.monotonic() + PATIENT
    while time.monotonic() < deadline:
        states = [int(path.name[5:]) for path in (run / "state").glob("step-*") if path.name[5:].isdecimal()]
        with suppress(OSError, ValueError, LookupError):
            last = json.loads((run / "run_history.json").read_text(encoding="utf-8"))["starts"][-1]
            if last["processes"] == world_size and states and max(states) >= steps:
                return max(states)
        time.sleep(0.2)
    raise AssertionError(f"no {world_size} processes at step {steps}\n{machines.said()}")


def test_a_machine_is_lost_and_another_joins(tmp_path, machines):
    run, hold = tmp_path / "run", tmp_path / "slow"
    settings = ["--data.cache_dir", str(tmp_path / "cache"), "--output.trackers", "[]"]
    settings += ["--train.device", "cpu", "--train.precision", "fp32", "--train.epochs", "3"]
    settings += ["--train.save_every", "5"]
    settings += ["--train.eval_every", "1000", "--train.timeout", "10", "--model.dropout", "0"]
    settings += [f"--model.config.{key}={value}" for key, value in SMALL.items()]
    elastic = [str(hold), "ddp", *settings, "--output.dir", str(run), "--resume", "auto"]

    hold.touch()
    for number in (0, 1):
        machines.start(number, elastic)
    step = wait_for(machines, run, 2, 5)
    machines.lose(1)
    step = wait_for(machines, run, 1, step + 5)
    machines.start(2, elastic)
    wait_for(machines, run, 2, step + 5)
    hold.unlink()
    codes = {number: agent.wait(timeout=PATIENT) for number, agent in machines.agents.items()}
    assert codes == {0: 0, 2: 0}, machines.said()
    assert sum(path.read_text().count("Report on test") for path in tmp_path.glob("log*")) == 1

    whole = tmp_path / "whole"
    alone = [sys.executable, "run_single.py", *settings, "--output.dir", str(whole)]
    subprocess.run(alone, cwd=ROOT, check=True, timeout=PATIENT, capture_output=True)
    assert largest_difference(run, whole) <= 1e-5
    reports = [json.loads((folder / "report.json").read_text(encoding="utf-8")) for folder in (run, whole)]
    assert reports[0]["confusion_matrix"] == reports[1]["confusion_matrix"]
    assert reports[0]["loss"] == pytest.approx(reports[1]["loss"], abs=1e-5)
