"""How fast a run trains."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# 30,000 years; what is written as a time must be some number of days
MAX_SECONDS = 1e12


class Speed:
    """Rows per second and the time left, since this process started; evaluations and saves do not count."""

    def __init__(self) -> None:
        self.rows = self.steps = 0
        self.seconds_before = 0.0
        self.started = time.perf_counter()

    def start(self) -> None:
        """Start the clock."""
        self.started = time.perf_counter()

    def count(self, rows: int) -> None:
        """Count one step of so many rows."""
        self.rows += rows
        self.steps += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context whose time does not count."""
        self.seconds_before = self.seconds
        yield
        self.started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds spent in training so far; not to be asked for while paused."""
        return self.seconds_before + time.perf_counter() - self.started

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds

    def seconds_left(self, steps_left: int) -> float:
        """Return how long so many steps will take, at most `MAX_SECONDS`."""
        return min(steps_left * self.seconds / max(1, self.steps), MAX_SECONDS)
