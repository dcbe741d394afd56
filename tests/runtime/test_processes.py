"""How a process ends with its launcher, and not with its shell: python -m pytest
tests/runtime/test_processes.py"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = "import sys, time; from app.runtime.processes import end_with_launcher; end_with_launcher(); "
RUN += "open(sys.argv[1], 'w').close(); time.sleep(4); open(sys.argv[2], 'w').close()"
RANKS = {"RANK": "1", "WORLD_SIZE": "2"}
VARIABLES = ("RANK", "WORLD_SIZE", "TORCHELASTIC", "HOROVOD")


def outlive(parent: list[str], variables: dict[str, str], folder: Path) -> tuple[bool, str]:
    """Start a run below a parent that is killed; return whether the run came to its end, and what it said."""
    begun, done, log = folder / "begun", folder / "done", folder / "log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    environment |= {"PYTHONPATH": str(ROOT)} | variables
    with log.open("w") as file:
        command = [*parent, sys.executable, "-c", RUN, str(begun), str(done)]
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = time.monotonic()
    while not done.exists() and time.monotonic() < killed + 8:
        time.sleep(0.05)
    return done.exists(), log.read_text()


SHELL = ["sh", "-c", '"$@"; true', "sh"]
LAUNCHER = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parent", "variables"), [(SHELL, {}), (SHELL, RANKS), (LAUNCHER, {}), (LAUNCHER, {"WORLD_SIZE": "2"})]
)
def test_a_run_without_a_launcher_survives_the_end_of_its_parent(tmp_path, parent, variables):
    assert outlive(parent, variables, tmp_path) == (True, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parent", "variables"),
    [
        (LAUNCHER, RANKS),
        (SHELL, {"HOROVOD_RANK": "1"}),
        (SHELL, RANKS | {"TORCHELASTIC_RUN_ID": "none"}),
        (LAUNCHER, RANKS | {"TORCHELASTIC_USE_AGENT_STORE": "True"}),
    ],
)
def test_a_run_ends_with_its_launcher_and_says_so(tmp_path, parent, variables):
    came_to_its_end, said = outlive(parent, variables, tmp_path)
    assert not came_to_its_end
    assert said.startswith("error (rank 1): the launcher that started this process (number ")
    assert said.endswith(
        ") has ended, so this process ends too; resume from the last training state with --output.resume "
        "auto\n"
    )
