"""Runs of three steps that a launcher starts, as users do."""

import subprocess
from pathlib import Path

from tests.processes import finish
from tests.ranks import SMALL


def run(command: list[str], folder: Path, *settings: str, **environment: str) -> subprocess.CompletedProcess:
    """Train three steps with a command; what it leaves is in `folder`."""
    shared = ["--output.dir", folder / "run", "--data.cache_dir", folder / "cache", "--train.max_steps", 3]
    shared += ["--train.device", "cpu", "--train.precision", "fp32"]
    shared += [f"--model.config.{key}={value}" for key, value in SMALL.items()]
    return finish([*command, *map(str, shared), *settings], **environment)
