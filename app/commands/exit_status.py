"""What the verbs tell of an error, and the exit status they end with."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from ..errors import InputError, TrainingError, check_working_folder
from ..words import _


def say(message: object) -> None:
    """Print a message on standard error; nothing if that is closed or full."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(str(message).encode(errors="backslashreplace").decode(), file=sys.stderr)


def exit_status(work: Callable[[], int | None]) -> int:
    """Call `work` and return its status, 0 for None: 2 for bad input, 1 for what failed, 130 after Ctrl-C,
    141 where standard output was closed by its reader. Errors go to standard error."""
    try:
        check_working_folder()
        status = work() or 0
    except (InputError, TrainingError) as error:
        say(_("error: {error}").format(error=error))
        status = 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        say("interrupted")
        status = 130
    except BrokenPipeError:
        status = 141
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # Python itself would report at its end, with another status, that this cannot be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
