"""Starting the processes of a mode by its own launcher, as a user does."""

from __future__ import annotations

import subprocess

from ...config.shipped import MODULE
from ...strategies import load_strategy
from .child_environment import child_environment


def run_verb(mode: str, processes: int, verb: str, arguments: list[str], timeout: float) -> str | None:
    """Run `python -m app VERB` in the processes of a mode for at most `timeout` seconds; return why it
    failed, or None."""
    command = load_strategy(mode).launcher.command(["-m", MODULE, verb, *arguments], processes)
    try:
        done = subprocess.run(
            command,
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {timeout:.0f} seconds"
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "Error" in line or line.startswith("error")]
        return (
            errors[-1].strip() if errors else f"it ended with status {done.returncode}: {done.stderr[-300:]}"
        )
    return None
