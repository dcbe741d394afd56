"""Calling a function in another process, which never runs the program that is running here.

`multiprocessing` imports that program in each process that it spawns, so a script without `if __name__ ==
"__main__":` would start again there, and wait for a lock that it holds itself. This process starts from one
line of ours, from scripts, notebooks and programs on standard input alike.
"""

import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from multiprocessing.spawn import get_executable
from typing import Any

from ..errors import InputError, TrainingError
from ..runtime.processes import leave

# This module has another name where the package is installed
START = (
    "import os, sys; from multiprocessing.connection import Connection; questions = Connection(os.dup(0)); "
    f"sys.path[:] = questions.recv(); from {__name__} import answer; answer(questions)"
)


class ProcessKilled(RuntimeError):
    """The other process has ended without an answer."""


def call_apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(*arguments)`, computed in another process, or raise what it raises there.

    The function must be importable by name, and all values picklable. The other process ends with this one,
    also when this one is killed. What the function prints goes to standard error. Raises ProcessKilled where
    the process ended too early.
    """
    process = subprocess.Popen([get_executable(), "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        # It may have ended already
        with suppress(BrokenPipeError), closing(_duplicate(process.stdin)) as questions:
            questions.send(sys.path)
            questions.send((function, arguments))
        outcome = _outcome(process.stdout)
    finally:
        # interrupted: nothing waits for its answer
        if sys.exc_info()[0] is not None:
            process.kill()
        process.stdout.close()
        process.wait()
        with suppress(BrokenPipeError):
            process.stdin.close()
    if outcome is None:
        raise ProcessKilled(f"the process ended with status {process.returncode} and without an answer")
    result, error = outcome
    if error is not None:
        raise error
    return result


def _duplicate(pipe: Any) -> Connection:
    return Connection(os.dup(pipe.fileno()))


def _outcome(pipe: Any) -> tuple[Any, BaseException | None] | None:
    """Return what the other process sends, a result or an error; None where it ended before."""
    with closing(_duplicate(pipe)) as answers:
        try:
            description = answers.recv()
            return answers.recv()
        except (EOFError, ConnectionError):
            return None
        except OSError as error:
            # Connection's own: the end within a message
            if error.errno is None:
                return None
            raise
        except Exception:  # noqa: BLE001 - an error of any library, which cannot be made again from its arguments
            return None, RuntimeError(description)


def answer(questions: Connection) -> None:
    """Compute what `questions` asks for, send the result or the error to standard output, and end."""
    answers = Connection(os.dup(1))
    try:
        os.dup2(2, 1)
    except OSError:
        # Standard error is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    function, arguments = questions.recv()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    description = None
    try:
        outcome = function(*arguments), None
    except BaseException as error:  # noqa: BLE001 - all of them are raised again by the process that waits
        description = "".join(traceback.format_exception(error))
        if not isinstance(error, (InputError, TrainingError, OSError)):
            error.add_note(f"In the process that prepares data:\n{traceback.format_exc()}")
        outcome = None, error
    answers.send(description)
    try:
        answers.send(outcome)
    except Exception as error:  # noqa: BLE001 - a result or an error that cannot be sent
        answers.send((None, RuntimeError(description or "".join(traceback.format_exception(error)))))
    leave(0)


def _end_with_parent() -> None:
    """End this process when standard input ends, which its parent keeps open as long as it waits."""
    os.read(0, 1)
    os._exit(1)
