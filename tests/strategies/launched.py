"""Runs of three steps that a launcher starts, as users do."""

import os
import subprocess
from pathlib import Path

from tests.ranks import ROOT, SMALL


def run(command: list[str], folder: Path, *settings: str, **environment: str) -> subprocess.CompletedProcess:
    """Train three steps with a command; what it leaves is in `folder`."""
    shared = ["--output.dir", folder / "run", "--data.cache_dir", folder / "cache", "--train.max_steps", 3]
    shared += ["--train.device", "cpu", "--train.precision", "fp32"]
    shared += [f"--model.config.{key}={value}" for key, value in SMALL.items()]
    return subprocess.run(
        [*command, *map(str, shared), *settings],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
