"""Writing files in a background thread while training continues."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundWriter:
    """Writes in the background, one task at a time; an error is raised by the next call."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.running: Future | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Call `write` in the background, after the previous one has ended."""
        self.wait()
        self.running = self.pool.submit(write)

    def wait(self) -> None:
        """Wait for the running write, and raise its error."""
        running, self.running = self.running, None
        if running:
            running.result()

    def close(self) -> None:
        """Wait until nothing is being written; an error that was not raised yet is dropped."""
        self.pool.shutdown(wait=True)
