"""How SIGTERM and SIGINT stop a run: in training all ranks finish the same step, save, and
end; later, each ends at once. Slurm and Kubernetes send SIGTERM before they take a machine
away; a person presses Ctrl-C."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch

from ..errors import TrainingError
from .group import Group

# Where ranks received different signals, the first of these is taken
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_SIGNAL_SECONDS = 1.0  # a signal that comes again this soon is the same one, sent by a launcher


class Stopped(BaseException):
    """A signal has ended this process with nothing to save; no Exception, so that nothing catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def set_handlers(receive: Callable[[int, Any], None]) -> dict[int, Any]:
    """Call `receive` for each signal from now on; return the old handlers, none outside the
    main thread. Only the main thread may set handlers; a training in another one is stopped
    by its program."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, receive) for number in SIGNALS}


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Give a context in which the first SIGTERM or SIGINT raises `Stopped`; the second does what it did."""

    def receive(number: int, frame: object) -> None:
        restore()
        raise Stopped(number)

    def restore() -> None:
        for number, handler in previous_handlers.items():
            # Another handler here means that the work is complete and signals are ignored: they stay so
            if signal.getsignal(number) is receive:
                signal.signal(number, handler)

    previous_handlers = set_handlers(receive)
    try:
        yield
    finally:
        restore()


class StopSignals:
    """A context in which the first SIGTERM or SIGINT is only recorded; the second ends this
    process. A signal may reach one rank or all, at different steps. So in each step the
    ranks sum up what they received, on the CPU. The same sum tells all ranks that one of
    them cannot write a file. Once the ranks have agreed to stop, or training has ended with
    an error, each of several ranks ignores SIGTERM from the end of the context on: a
    launcher sends it as soon as the first rank has ended."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.received = 0  # the number of the first signal, 0 before it
        self.received_at = 0.0
        self.stopped_by = 0  # the number of the signal on which the ranks have agreed

    def __enter__(self) -> Self:
        self.previous_handlers = set_handlers(self.receive)
        return self

    def __exit__(self, *failure: Any) -> None:
        has_failed = any(isinstance(part, TrainingError) for part in failure)
        is_over = bool(self.stopped_by) or has_failed
        if is_over and self.previous_handlers and self.group.world_size > 1:
            self.previous_handlers[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)

    def receive(self, number: int, frame: object = None) -> None:
        if not self.received:
            self.received = number
            self.received_at = time.monotonic()
            return
        # Ctrl-C reaches every process of a terminal, and a launcher forwards it: its workers get it twice.
        is_soon = time.monotonic() - self.received_at < SAME_SIGNAL_SECONDS
        is_forwarded = self.group.world_size > 1 and is_soon
        if not is_forwarded:
            os._exit(128 + number)

    def ignore_later_ones(self) -> None:
        """Ignore all signals from the end of the context on: the work of this process is complete."""
        self.previous_handlers = dict.fromkeys(self.previous_handlers, signal.SIG_IGN)

    def agree(self, has_failed: bool) -> bool:
        """Let a signal that any rank has received be `stopped_by` on all ranks alike, and
        return whether any rank has failed; every rank calls it each step."""
        flags = [self.received == number for number in SIGNALS]
        flags.append(has_failed)
        counts = self.group.reduce_sum(torch.tensor(flags).long()).tolist()
        num_failures = counts.pop()
        received = [number for number, count in zip(SIGNALS, counts, strict=True) if count]
        self.stopped_by = int(received[0]) if received else 0
        return num_failures > 0
