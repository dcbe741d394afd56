"""metrics.jsonl: one line of JSON for each evaluation."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from ...runtime.disk import write_bytes

logger = logging.getLogger(__name__)


def append_metrics(
    path: Path, step: int, split: str, metrics: dict, names: tuple[str, ...], is_best: bool, seconds: float
) -> None:
    """Append the line of an evaluation: of its metrics those in `names`, and the classes where there are any."""
    values = {
        "step": step,
        "split": split,
        **{name: metrics[name] for name in names},
        **{name: metrics[name] for name in ("classes",) if name in metrics},
        "best": is_best,
        "rows": metrics["rows"],
        "seconds": round(seconds, 3),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values, ensure_ascii=False) + "\n")


def drop_later_lines(path: Path, first_step: int) -> None:
    """Remove the lines of evaluations after `first_step`, which the resumed run will do again.

    A line that is damaged stays, with a warning; the last one may be cut off, and is removed.
    """
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(True)
    kept = []
    for number, line in enumerate(lines, 1):
        step = step_of(line)
        if step is None and number < len(lines):
            logger.warning("%s, line %d is no evaluation in JSON and stays as it is", path, number)
            kept.append(line)
        elif step is not None and step <= first_step and line.endswith(b"\n"):
            kept.append(line)
    if kept != lines:
        write_bytes(path, b"".join(kept))


def step_of(line: bytes) -> int | None:
    """Return the step of an evaluation's line, or None where the line is damaged."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return None
    return step if isinstance(step, int) else None
