"""What the verbs tell of an error, and the exit status they end with."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..errors import InputError, TrainingError


def print_error(message: str) -> None:
    """Print a message on standard error."""
    print(message, file=sys.stderr)


def exit_status(
    work: Callable[[], int | None], say: Callable[[str], None] = print_error, interrupted: str = "interrupted"
) -> int:
    """Call `work` and return its status, 0 for None: 2 for bad input, 1 for what failed, 130 after Ctrl-C.

    `say` prints the message of an error, and `interrupted` after Ctrl-C.
    """
    try:
        return work() or 0
    except InputError as error:
        say(f"error: {error}")
        return 2
    except TrainingError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say(interrupted)
        return 130
