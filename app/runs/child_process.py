"""Runs in processes of their own: the environment that they need, and how they end."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from ..modes.group import Stopped, stop_at_once

PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
MAX_ERROR_LENGTH = 500  # characters of an error line that are shown


def child_environment() -> dict[str, str]:
    """Return the environment of this process, changed so that `python -m app` runs this package in any
    folder. PYTHONSAFEPATH keeps the working folder, which may have an `app`, off the module path."""
    paths = [str(PACKAGE_FOLDER)]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


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
