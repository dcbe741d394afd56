"""SIGTERM and SIGINT: in training all ranks finish the same step, save, and end; later, at once. Slurm,
Kubernetes and others send SIGTERM before they take a machine away; a person presses Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ..errors import TrainingError
from .group import Group

# The first of them wins where ranks received different ones
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_SIGNAL_SECONDS = 1.0


class Stopped(BaseException):
    """A signal has ended this process with nothing to save; no Exception, so that nothing catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def install(receive: Callable[[int, Any], None]) -> dict[int, Any]:
    """Call `receive` for each signal from now on; return the old handlers, none outside the main thread. Only
    the main thread may set handlers; a training in another one is stopped by its program."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, receive) for number in SIGNALS}


class StopAtOnce:
    """A context in which the first SIGTERM or SIGINT raises `Stopped`; the second does what it did before."""

    def __enter__(self) -> StopAtOnce:
        self.previous_handlers = install(self.receive)
        return self

    def __exit__(self, *failure: Any) -> None:
        for number, handler in self.previous_handlers.items():
            # Else signals are ignored since the work is complete
            if signal.getsignal(number) == self.receive:
                signal.signal(number, handler)

    def receive(self, number: int, frame: object = None) -> None:
        """End what this process does; it still closes its files."""
        self.__exit__()
        raise Stopped(number)


class StopSignals:
    """A context in which the first SIGTERM or SIGINT is only recorded; the second ends this process.

    A signal may reach one rank or all, at different steps. So in each step the ranks sum up what they
    received, on the CPU. The same sum tells all ranks in `has_failed` that one of them cannot write a file.

    Once the ranks have agreed to stop, or training has ended with an error, each of several ranks ignores
    SIGTERM from the end of the context on: a launcher sends it as soon as the first rank has ended, and all
    ranks are to finish what they write, and to end with the status of what stopped the run.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.received = 0
        self.received_at = 0.0
        self.stopped_by = 0
        self.has_failed = False
        self.counts = [0, 0, 0]

    def __enter__(self) -> StopSignals:
        self.previous_handlers = install(self.receive)
        return self

    def __exit__(self, *failure: Any) -> None:
        is_over = self.stopped_by or any(isinstance(part, TrainingError) for part in failure)
        if is_over and self.previous_handlers and self.group.world_size > 1:
            self.previous_handlers[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)

    def receive(self, number: int, frame: object = None) -> None:
        """Record the first signal; end the process at the second."""
        # Ctrl-C reaches every process of a terminal, and a launcher also forwards it to its workers: they get
        # it twice.
        same = self.group.world_size > 1 and time.monotonic() - self.received_at < SAME_SIGNAL_SECONDS
        if self.received and not same:
            os._exit(128 + number)
        if not self.received:
            self.received, self.received_at = number, time.monotonic()

    def ignore_later_ones(self) -> None:
        """Ignore all signals from the end of the context on: the work of this process is complete."""
        self.previous_handlers = dict.fromkeys(self.previous_handlers, signal.SIG_IGN)

    def share(self, has_failed: bool = False) -> None:
        """Tell the other ranks of signals and a failure; every rank calls it each step."""
        flags = torch.tensor([*(self.received == number for number in SIGNALS), has_failed])
        self.counts = self.group.reduce_sum(flags.long()).tolist()

    def agreed(self) -> int:
        """Return the signal that any rank had received at this step's `share`, or 0, on all ranks alike."""
        *counts, failures = self.counts
        self.has_failed = failures > 0
        received = [int(number) for number, count in zip(SIGNALS, counts, strict=True) if count]
        self.stopped_by = received[0] if received else 0
        return self.stopped_by
