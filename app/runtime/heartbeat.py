"""Heartbeats between the ranks of a run, so that none waits for one that is stopped or cut off.

A collective waits for every rank. It fails at once where a process has died, but waits half an hour for one
that is only stopped, or whose machine is gone. So each rank increases a number in the store once a second,
and watches the next rank's.
"""

import os
import sys
import threading
import time
from datetime import timedelta

BEAT_SECONDS = 1.0


class Heartbeat:
    """A thread that beats for this rank, and ends it when the next one is silent for `timeout` seconds.

    `store` is a separate connection: the main thread may be waiting in another one. The silence is counted in
    beats of this rank, not by the clock: neither a new time nor a pause of the machine counts.
    """

    def __init__(self, store, rank: int, world_size: int, timeout: int) -> None:
        self.store = store
        store.set_timeout(timedelta(seconds=BEAT_SECONDS))
        self.rank = rank
        self.watched = (rank + 1) % world_size
        self.timeout = timeout
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.beat, name="heartbeat", daemon=True)
        self.thread.start()

    def beat(self) -> None:
        """Beat and watch until `stop`."""
        beats, silent_seconds, last_beat = 0, 0.0, b""
        while not self.stopped.wait(BEAT_SECONDS):
            beats += 1
            asked_at = time.monotonic()
            try:
                self.store.set(f"beat{self.rank}", str(beats))
                key = f"beat{self.watched}"
                beat = self.store.get(key) if self.store.check([key]) else b""
                cause = f"rank {self.watched} has not responded"
            except RuntimeError:
                beat = last_beat
                cause = (
                    "the store by which the ranks find each other (in the launcher or rank 0) has not "
                    "responded"
                )
            silent = beat == last_beat and beat != b"left"
            silent_seconds = silent_seconds + BEAT_SECONDS + time.monotonic() - asked_at if silent else 0.0
            last_beat = beat
            if silent_seconds >= self.timeout:
                self.end(f"{cause} for {self.timeout} seconds (train.timeout)")

    def end(self, cause: str) -> None:
        """Print the cause and end this process, whatever it waits for; its launcher then ends the others."""
        if self.stopped.is_set():
            return
        print(  # noqa: T201
            f"error (rank {self.rank}): {cause}: it is stopped, or its machine cannot be reached. This rank "
            "ends; resume from the last training state with --output.resume auto",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)

    def stop(self) -> None:
        """Tell the others that this rank is done, and stop beating."""
        self.stopped.set()
        self.thread.join(BEAT_SECONDS)
        try:
            self.store.set(f"beat{self.rank}", "left")
        except RuntimeError:
            # The process that hosted the store is done too
            return
