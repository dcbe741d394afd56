"""Commands in processes of their own, for the tests, and where the files are that they read."""

import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The public data sets, in this folder of the environment or in shared/data beside the repository
REAL_DATA = Path(os.environ.get("REAL_DATA") or ROOT.parent / "shared" / "data").absolute()


def finish(
    command: list[str], folder: Path = ROOT, timeout: float = 300, status: int | None = None, **variables: str
) -> subprocess.CompletedProcess:
    """Run a command in a folder, one thread for each of its processes; return its status and what it said.
    `status` is the one it must have."""
    env = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    options = {"cwd": folder, "env": env, "capture_output": True, "text": True, "timeout": timeout}
    done = subprocess.run(command, **options, check=False)
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done


def wait_until(
    condition: Callable[[], object], seconds: float = 60, explain: Callable[[], str] = str
) -> object:
    """Wait for what stays true once it is, and return it; `explain` returns what to print if it never is."""
    deadline = time.monotonic() + seconds
    value = condition()
    while not value:
        assert time.monotonic() < deadline, explain()
        time.sleep(0.05)
        value = condition()
    return value


@contextmanager
def full_disk(size: int = 1000) -> Iterator[None]:
    """Give this process, whose files get no larger than `size` bytes, the errors of a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
