"""What a run sends to a tracker, and what the tracker does with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrackedRun:
    """A run: its folder, its name, the project it belongs to, and its settings by their dotted names."""

    folder: Path
    name: str
    project: str
    settings: dict[str, Any]


class Tracker:
    """One service. Its methods are called in one thread, and may raise anything: that ends no training.
    `run_id` names the run in the service, so that a resumed run continues it."""

    run_id: str

    def __init__(self, run: TrackedRun, run_id: str | None) -> None:
        """Start a run in the service, or continue the one named `run_id`."""
        raise NotImplementedError

    def add(self, values: dict[str, float], step: int) -> None:
        """Add a point at `step` to the curve of each name."""
        raise NotImplementedError

    def close(self, status: str) -> None:
        """End the run in the service; `status` is finished, stopped or failed."""
        raise NotImplementedError
