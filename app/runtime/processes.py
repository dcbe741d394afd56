"""This process: what launcher started it, and that it ends with that."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Variables of torchrun and our own mp.spawn, horovodrun, deepspeed
OF_LAUNCHERS = ("TORCHELASTIC_", "HOROVOD_RANK", "CROSS_RANK")
# Held while a model is built, loaded or fitted: transformers' switch that leaves weights uninitialised, its
# verbosity, and torch's random generator belong to the whole process, so two threads would get wrong models.
# `fit` also loads, so the same thread may take it again.
MODEL_LOCK = threading.RLock()


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


def launcher_id() -> str | None:
    """Return what all processes of one torchrun on a machine share, restarted ones too, and no others: the
    folder that it makes for their errors; None without torchrun."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    return str(Path(file).parents[2]) if file else None
