"""A tracker in a thread: the training never waits for a service, and no error of one ends it."""

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from typing import Any

from ....errors import first_line
from ....runtime.disk import write_json
from .tracker import TrackedRun, Tracker

logger = logging.getLogger(__name__)
# In the run folder: for each service the name of the run there, and its last points
FOLDER = "trackers"
# points; a service that is so far behind loses the next ones
MAX_WAITING = 10_000
# In a row, then the tracker is left out
MAX_FAILURES = 3
CLOSE_SECONDS = 60.0


class BackgroundTracker:
    """Passes points on to a tracker, each once, also when the run is resumed."""

    def __init__(self, name: str, find: Callable[[], type[Tracker]], run: TrackedRun) -> None:
        self.name = name
        self.find = find
        self.run = run
        self.path = run.folder / FOLDER / f"{name}.json"
        self.points: Queue[tuple[str, dict[str, float], int] | None] = Queue(MAX_WAITING)
        self.status = "failed"
        self.is_left_out = False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def add(self, group: str, values: dict[str, float], step: int) -> None:
        """Add a point at `step` to the curve `group/name` of each value; returns at once."""
        if self.is_left_out:
            return
        try:
            self.points.put_nowait((group, values, step))
        except Full:
            self.leave_out(f"it is {MAX_WAITING:,} points behind")

    def close(self, status: str, seconds: float = CLOSE_SECONDS) -> None:
        """Pass on what is left and end the run in the service; waits for at most `seconds`."""
        self.status = status
        with suppress(Full):
            self.points.put_nowait(None)
        self.thread.join(seconds)
        if self.thread.is_alive():
            self.leave_out(f"it has not answered for {seconds:g} seconds")

    def leave_out(self, problem: str) -> None:
        """Say, once, that the tracker gets no more points."""
        if not self.is_left_out:
            self.is_left_out = True
            logger.warning(
                "The tracker %s is left out from here on: %s. The training is not affected.",
                self.name,
                problem,
            )

    def work(self) -> None:
        """Start the run in the service and pass on points until `close`; runs in the thread."""
        try:
            known = self.read()
            tracker = self.find()(self.run, known.get("id"))
            last: dict[str, int] = dict(known.get("steps", {}))
            self.write(tracker, last)
            self.pass_on(tracker, last)
            tracker.close(self.status)
        except BaseException as error:  # noqa: BLE001 - of any library; SystemExit too
            self.leave_out(f"{type(error).__name__}: {first_line(error)}")

    def pass_on(self, tracker: Tracker, last: dict[str, int]) -> None:
        """Pass on the points that are later than the last ones of their groups."""
        failures = 0
        while (point := self.points.get()) is not None and not self.is_left_out:
            group, values, step = point
            if step <= last.get(group, -1):
                # Of the resumed run, from before it was interrupted
                continue
            try:
                tracker.add({f"{group}/{name}": float(value) for name, value in values.items()}, step)
            except Exception as error:  # noqa: BLE001 - of any library
                failures += 1
                logger.warning(
                    "The tracker %s lost the point of step %d: %s", self.name, step, first_line(error)
                )
                if failures == MAX_FAILURES:
                    raise
                continue
            failures, last[group] = 0, step
            self.write(tracker, last)

    def read(self) -> dict[str, Any]:
        """Return what an earlier start of this run has written, or nothing."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}

    def write(self, tracker: Tracker, last: dict[str, int]) -> None:
        """Keep the name of the run in the service, and the last points."""
        self.path.parent.mkdir(exist_ok=True)
        write_json(self.path, {"id": tracker.run_id, "steps": last})
