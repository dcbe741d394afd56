"""Starting the processes of a mode by its own launcher, as a user does."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ...config.shipped import MODULE
from ...modes import load_mode


def child_environment() -> dict[str, str]:
    """Return the environment of this process, so changed that `python -m app` is this package in any folder.
    PYTHONSAFEPATH keeps the working folder off the module path: a folder `app` in it would be run instead."""
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def last_error(lines: Iterable[str]) -> str | None:
    """Return the last line that names an error, shortened; None where there is none."""
    errors = [line.strip() for line in lines if "rror" in line]
    return errors[-1][:500] if errors else None


def run_verb(mode: str, processes: int, verb: str, arguments: list[str], timeout: float) -> str | None:
    """Run `python -m app VERB` in a mode's processes, at most `timeout` seconds; return why it failed."""
    command = load_mode(mode).launcher.command(["-m", MODULE, verb, *arguments], processes)
    options = {"capture_output": True, "text": True, "timeout": timeout, "check": False}
    try:
        done = subprocess.run(command, env=child_environment(), **options)
    except subprocess.TimeoutExpired:
        return f"it did not end within {timeout:.0f} seconds"
    if not done.returncode:
        return None
    error = last_error(done.stderr.splitlines())
    return error or f"it ended with status {done.returncode}: {done.stderr[-300:]}"
