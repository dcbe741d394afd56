"""metrics.jsonl: one line of JSON for each evaluation."""

from __future__ import annotations

import json
from pathlib import Path

METRICS = ("loss", "accuracy", "macro_f1", "weighted_f1")


def append_metrics(path: Path, step: int, split: str, metrics: dict, is_best: bool, seconds: float) -> None:
    """Append the line of an evaluation; `metrics` of `compute_metrics`."""
    values = {
        "step": step,
        "split": split,
        **{name: metrics[name] for name in METRICS},
        "classes": metrics["classes"],
        "best": is_best,
        "rows": metrics["rows"],
        "seconds": round(seconds, 3),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values, ensure_ascii=False) + "\n")


def drop_later_lines(path: Path, first_step: int) -> None:
    """Remove the lines of evaluations after `first_step`, which the resumed run will do again."""
    if not path.exists():
        return
    whole = [line for line in path.read_bytes().splitlines(True) if line.endswith(b"\n")]  # the last may be cut off
    path.write_bytes(b"".join(line for line in whole if json.loads(line)["step"] <= first_step))
