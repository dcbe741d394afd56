"""Imports of large libraries, for programs of this project: no garbage collector, and a quiet Ctrl-C."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports(module: str) -> Iterator[None]:
    """Switch the garbage collector off while `module` is imported for the first time, and with it all that it
    imports. Ctrl-C ends the process meanwhile, with status 130.

    torch and transformers make some 600,000 objects that stay until the process ends. The collector would
    look at them over and over, which is an eighth of the time that these imports take, and would find nothing
    to free. So it is off, and afterwards it ignores what is there (`gc.freeze`). transformers makes an
    ImportError of a KeyboardInterrupt. For programs of this project only: what a program of a user has made
    before would never be freed.
    """
    if module in sys.modules or not gc.isenabled():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    # Not where it is ignored, as after `nohup`
    is_ours = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if is_ours:
        signal.signal(signal.SIGINT, end_quietly)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if is_ours:
            signal.signal(signal.SIGINT, handler)


def end_quietly(number: int, frame: object = None) -> None:
    """End this process, which has nothing to save yet."""
    print("interrupted", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(128 + number)
