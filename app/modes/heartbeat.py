"""The signs of life that the ranks of a run give each other."""

import os
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

BEAT_SECONDS = 1.0
LEFT = b"left"  # the last beat of a rank that has ended its work


class Heartbeat:
    """A thread that beats once a second, and ends the process when the next rank is silent
    for `timeout` seconds. They are counted in own beats, so that a pause of the whole
    machine does not count. A collective fails at once where a process has died, but waits
    half an hour for one that is stopped, or whose machine is gone. `store` must be a
    connection that no other thread uses."""

    def __init__(self, store: dist.Store, rank: int, world_size: int, timeout: int) -> None:
        self.store = store
        self.rank = rank
        self.watched_rank = (rank + 1) % world_size
        self.timeout = timeout
        self.has_left = threading.Event()
        self.thread = threading.Thread(target=self.beat_until_left, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """Tell the other ranks that this one has ended its work."""
        self.has_left.set()
        self.thread.join(2 * BEAT_SECONDS)

    def beat_until_left(self) -> None:
        self.store.set_timeout(timedelta(seconds=BEAT_SECONDS))
        own_key = beat_key(self.rank)
        last_beat = b""
        silent_seconds = 0.0
        while not self.has_left.wait(BEAT_SECONDS):
            asked_at = time.monotonic()
            beat = last_beat
            # A store that does not answer is a silence too
            with suppress(RuntimeError):
                self.store.set(own_key, str(asked_at))
                beat = self.beat_of_watched_rank()
            if beat == last_beat and beat != LEFT:
                silent_seconds += BEAT_SECONDS + time.monotonic() - asked_at
            else:
                silent_seconds = 0.0
            last_beat = beat
            if silent_seconds >= self.timeout and not self.has_left.is_set():
                self.end_process()
        # The process that hosted the store may be done too
        with suppress(RuntimeError):
            self.store.set(own_key, LEFT)

    def beat_of_watched_rank(self) -> bytes:
        """Return the last beat of the watched rank, which is empty before its first one."""
        key = beat_key(self.watched_rank)
        if not self.store.check([key]):
            return b""
        return self.store.get(key)

    def end_process(self) -> None:
        message = (
            f"error (rank {self.rank}): rank {self.watched_rank} has not responded for "
            f"{self.timeout} seconds (train.timeout): it is stopped, or its machine is gone; "
            "resume with --output.resume auto"
        )
        print(message, file=sys.stderr, flush=True)  # noqa: T201
        os._exit(1)


def beat_key(rank: int) -> str:
    """Return the key under which the store has the last beat of a rank."""
    return f"beat{rank}"
