"""The processes of a run: what they exchange, and how SIGTERM and SIGINT stop them: in training all ranks
finish the same step, save, and end; later, at once. Slurm and Kubernetes send SIGTERM before they take a
machine away; a person presses Ctrl-C."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import torch

from ..errors import InputError, TrainingError

# The first of them wins where ranks received different ones
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_SIGNAL_SECONDS = 1.0


class Group:
    """The processes of a run; `rank == 0` prints and writes. `rank` and `world_size` count all processes,
    `local_rank` and `local_world_size` those of this machine. Every rank must call each method. This class is
    a process alone, for which all of this is trivial."""

    rank = 0
    world_size = 1
    local_rank = 0
    local_world_size = 1

    def join(self, device: torch.device, timeout: int) -> None:
        """Meet the other processes. A process that does not respond for `timeout` seconds ends the others."""

    def leave(self, has_failed: bool) -> None:
        """Part from the other processes; after a failure this process just ends, which tells the others."""

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows of every rank, concatenated on dim 0, on every rank; their counts may differ."""
        return rows

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of `values` over all ranks, on every rank."""
        return values

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value` (any picklable object) on every rank."""
        return value

    def gather_values(self, value: Any) -> list[Any]:
        """Return every rank's `value`, which can be written as JSON, in the order of ranks, on every rank."""
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = self.gather(torch.tensor([len(content)])).tolist()
        return [json.loads(bytes(part.tolist())) for part in self.gather(content).split(lengths)]

    def on_rank_0(self, work: Callable[[], Any]) -> Any:
        """Call `work` on rank 0 only, and return its result (any picklable object) on every rank. Where it
        fails, every rank raises: InputError where rank 0 does, else TrainingError with the reason."""
        if self.world_size == 1:
            return work()
        result, failure = None, None
        if self.rank == 0:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
        told = failure and (isinstance(failure, InputError), f"rank 0 has ended: {failure}")
        result, told = self.broadcast((result, told))
        if told:
            # No rank ends before all of them know why; the first one to end may break the connection
            with suppress(RuntimeError):
                self.reduce_sum(torch.zeros(1))
            if failure:
                raise failure
            is_input_error, message = told
            raise (InputError if is_input_error else TrainingError)(message)
        return result


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


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Give a context in which the first SIGTERM or SIGINT raises `Stopped`; the second does what it did."""

    def receive(number: int, frame: object) -> None:
        restore()
        raise Stopped(number)

    def restore() -> None:
        for number, handler in previous_handlers.items():
            # Else signals are ignored since the work is complete
            if signal.getsignal(number) is receive:
                signal.signal(number, handler)

    previous_handlers = install(receive)
    try:
        yield
    finally:
        restore()


class StopSignals:
    """A context in which the first SIGTERM or SIGINT is only recorded; the second ends this process.

    A signal may reach one rank or all, at different steps. So in each step the ranks sum up what they
    received, on the CPU. The same sum tells all ranks that one of them cannot write a file.

    Once the ranks have agreed to stop, or training has ended with an error, each of several ranks ignores
    SIGTERM from the end of the context on: a launcher sends it as soon as the first rank has ended.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.received, self.received_at, self.stopped_by = 0, 0.0, 0

    def __enter__(self) -> Self:
        self.previous_handlers = install(self.receive)
        return self

    def __exit__(self, *failure: Any) -> None:
        is_over = self.stopped_by or any(isinstance(part, TrainingError) for part in failure)
        if is_over and self.previous_handlers and self.group.world_size > 1:
            self.previous_handlers[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)

    def receive(self, number: int, frame: object = None) -> None:
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

    def agree(self, has_failed: bool) -> bool:
        """Let a signal that any rank has received be `stopped_by` on all ranks alike, and return whether any
        rank has failed; every rank calls it each step."""
        flags = torch.tensor([*(self.received == number for number in SIGNALS), has_failed])
        *counts, failures = self.group.reduce_sum(flags.long()).tolist()
        received = [int(number) for number, count in zip(SIGNALS, counts, strict=True) if count]
        self.stopped_by = received[0] if received else 0
        return failures > 0
