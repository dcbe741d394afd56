"""Runs in processes of their own, and how they end."""

import subprocess
from collections.abc import Iterable
from typing import IO

from ..modes.signals import Stopped, stop_at_once
from ..runtime.processes import child_environment

MAX_ERROR_LENGTH = 500  # characters of an error line that are shown


def run_to_end(command: list[str], output: IO) -> int:
    """Run a command to its end and return its status; both its outputs go to the file `output`. A SIGTERM or
    SIGINT of this process is passed on to it, and raised as Stopped after the command has ended."""
    process = subprocess.Popen(
        command,
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        # Without a session of its own it would get Ctrl-C twice, from the terminal and from us, and the
        # second one would end it at once
        start_new_session=True,
    )
    try:
        with stop_at_once():
            return process.wait()
    except Stopped as stop:
        process.send_signal(stop.number)
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.terminate()


def last_error(lines: Iterable[str]) -> str | None:
    """Return the last line that names an error, shortened; None where there is none."""
    error = None
    for line in lines:
        if "rror" in line:
            error = line.strip()[:MAX_ERROR_LENGTH]
    return error
