"""How a process ends with its launcher, and not with its shell: python -m pytest
tests/runtime/test_processes.py"""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = "import os, sys, time; from app.runtime.processes import end_with_launcher; end_with_launcher(); "
RUN += "print(os.getpid(), file=open(sys.argv[1], 'w')); time.sleep(4); open(sys.argv[2], 'w').close()"
RANKS = {"RANK": "1", "WORLD_SIZE": "2"}
VARIABLES = ("RANK", "WORLD_SIZE", "TORCHELASTIC", "HOROVOD", "CROSS_RANK")


def outlive(cases: list[tuple[list[str], dict[str, str]]], folder: Path) -> list[tuple[bool, str]]:
    """Start runs side by side, each below a parent that is killed, with variables; return whether each came
    to its end, and what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    environment |= {"PYTHONPATH": str(ROOT)}
    places = [folder / str(number) for number in range(len(cases))]
    parents = []
    for (parent, variables), place in zip(cases, places, strict=True):
        command = [*parent, sys.executable, "-c", RUN, f"{place}.begun", f"{place}.done"]
        with Path(f"{place}.log").open("w") as file:
            parents.append(subprocess.Popen(command, env=environment | variables, stdout=file, stderr=file))
    runs = [wait_for_number(Path(f"{place}.begun")) for place in places]
    for parent in parents:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(runs, timeout=60)
    assert not alive
    return [(Path(f"{place}.done").exists(), Path(f"{place}.log").read_text()) for place in places]


def wait_for_number(path: Path) -> psutil.Process:
    """Wait for the file in which a run has written the number of its process."""
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, path.with_suffix(".log").read_text()
        time.sleep(0.05)
    return psutil.Process(int(path.read_text()))


pytestmark = pytest.mark.slow
SHELL = ["sh", "-c", '"$@"; true', "sh"]
LAUNCHER = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]


def test_a_run_without_a_launcher_survives_the_end_of_its_parent(tmp_path):
    # Set by hand, or by Kubernetes
    cases = [(SHELL, {}), (SHELL, RANKS), (LAUNCHER, {}), (LAUNCHER, RANKS)]
    assert outlive(cases, tmp_path) == [(True, "")] * len(cases)


def test_a_run_ends_with_its_launcher_and_says_so(tmp_path):
    cases = [
        (LAUNCHER, RANKS | {"CROSS_RANK": "0"}),
        (SHELL, {"HOROVOD_RANK": "1"}),
        (SHELL, RANKS | {"TORCHELASTIC_RUN_ID": "none"}),
        (LAUNCHER, RANKS | {"TORCHELASTIC_USE_AGENT_STORE": "True"}),
    ]
    for came_to_its_end, said in outlive(cases, tmp_path):
        assert not came_to_its_end
        assert said.startswith("error (rank 1): the launcher that started this process (number ")
        assert said.endswith(
            ") has ended, so this process ends too; resume from the last training state with --output.resume "
            "auto\n"
        )
