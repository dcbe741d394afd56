"""Commands in processes of their own, for the tests."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def finish(
    command: list[str], folder: Path = ROOT, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess:
    """Run a command in a folder, one thread for each of its processes; return its status and what it said."""
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
