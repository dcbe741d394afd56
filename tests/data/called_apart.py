"""Functions that the tests call in another process; it imports this file, so nothing slow is imported
here."""

import os
import signal
import time
from pathlib import Path

from app.errors import InputError


class OddError(Exception):
    """Cannot be made of what it holds, as errors of some libraries."""

    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


def double(number):
    return 2 * number


def fail(kind):
    errors = {
        "input": InputError("rows.tsv, line 3: not like that"),
        "key": KeyError("x"),
        "odd": OddError("odd", "error"),
    }
    raise errors[kind]


def end_at_once(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def say_and_sleep(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(300)
