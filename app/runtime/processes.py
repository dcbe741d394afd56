"""The processes of a run: their cores, what launcher started them, and that they end with it."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from ..errors import InputError, shorten

# Variables of torchrun and our own mp.spawn, horovodrun, deepspeed
OF_LAUNCHERS = ("TORCHELASTIC_", "HOROVOD_RANK", "CROSS_RANK")


def num_cores() -> int:
    """Return the number of cores that this process may use, at least 1: those that it is bound to, and no
    more than its container is given. With a limit of 2 CPUs on 64 cores, 64 threads would wait for each other
    most of the time."""
    # Later than --help
    import joblib

    return joblib.cpu_count()


def leave(status: int) -> NoReturn:
    """End this process without Python's own shutdown, which ends a thread of gloo by force and so aborts the
    process (SIGABRT, torch 2.13): of some hundred complete runs, one was reported as failed."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """While libraries are imported, let Ctrl-C end this process with status 130: there is nothing to save,
    and transformers would make an ImportError of the KeyboardInterrupt."""
    handler = signal.getsignal(signal.SIGINT)
    # Not where it is ignored, as after `nohup`
    is_ours = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if is_ours:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, handler)


def end_with_launcher() -> None:
    """End this process when the launcher that started it has ended: a killed launcher leaves no orphan. A
    process without a launcher is left alone: its parent is a shell, which may end before the run."""
    launcher = os.getppid()
    if not any(name.startswith(OF_LAUNCHERS) for name in os.environ):
        return

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        message = (
            f"error (rank {launched_rank()}): the launcher that started this process (number {launcher}) has "
            "ended, so this process ends too; resume from the last training state with --output.resume auto\n"
        )
        # The pipe to the launcher; not sys.stderr, whose lock another thread may hold
        with suppress(OSError):
            os.write(2, message.encode())
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def launched_rank() -> int:
    """Return the rank that the launcher gave this process, torchrun or horovodrun; 0 without one."""
    rank = os.environ.get("RANK", os.environ.get("HOROVOD_RANK", ""))
    return int(rank) if rank.isdecimal() else 0


def launched_number(name: str, default: int, least: int = 0, most: int = 1 << 31) -> int:
    """Return the whole number that a launcher put into an environment variable, `default` if it is not set.
    Raises InputError, naming the variable, for anything else."""
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and least <= int(text[:20]) <= most):
        raise InputError(
            f"the environment variable {name}, which a launcher sets, must be a whole number from {least} to "
            f"{most}, found '{shorten(text)}'; correct it, or unset it to train in one process"
        )
    return int(text)


def launcher_id() -> str | None:
    """Return what all processes of one torchrun on a machine share, restarted ones too, and no others: the
    folder that it makes for their errors; None without torchrun."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    return str(Path(file).parents[2]) if file else None
