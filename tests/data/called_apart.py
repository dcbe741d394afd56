"""Functions that the tests call in another process; it imports this file, so nothing slow is imported
here."""

import os
import signal
import time
from pathlib import Path

from app.errors import InputError


def double(number):
    return 2 * number


def fail(kind):
    raise {"input": InputError("rows.tsv, line 3: not like that"), "key": KeyError("x")}[kind]


def end_at_once(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def say_and_sleep(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(300)
