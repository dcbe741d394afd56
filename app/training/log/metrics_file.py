"""metrics.jsonl: one line of JSON for each evaluation. A line may be damaged: `kill -9` leaves half a line,
and a power cut zero bytes. They stay, and are skipped."""

import json
import logging
import re
from pathlib import Path
from typing import Any

from ...runtime.disk import write_bytes

logger = logging.getLogger(__name__)
METRICS = "metrics.jsonl"
BEGINNING = re.compile(rb'\{"step": (\d+),')


def append_metrics(
    path: Path, step: int, split: str, metrics: dict, names: tuple[str, ...], is_best: bool, seconds: float
) -> None:
    """Append the line of an evaluation: its metrics in `names`, the mean loss of training since the one
    before, and the classes, where there are any."""
    values = {
        "step": step,
        "split": split,
        **{name: metrics[name] for name in names},
        **{name: metrics[name] for name in ("train_loss", "classes") if name in metrics},
        "best": is_best,
        "rows": metrics["rows"],
        "seconds": round(seconds, 3),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values, ensure_ascii=False) + "\n")


def read_evaluations(path: Path, names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the evaluations in the file, if any, each with `step` and the metrics in `names`. Lines that
    have not all of them are skipped with one warning."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    evaluations = {number: parse_line(line, names) for number, line in enumerate(lines, 1)}
    warn_of_damage(path, [number for number, evaluation in evaluations.items() if evaluation is None])
    return [evaluation for evaluation in evaluations.values() if evaluation is not None]


def drop_later_lines(path: Path, first_step: int) -> None:
    """Remove the lines after `first_step`, which a resumed run does again, and a last one that is cut off:
    with a warning, unless that evaluation comes again too."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(True)
    kept, damaged = [], []
    for number, line in enumerate(lines, 1):
        evaluation = parse_line(line)
        if evaluation is not None:
            if evaluation["step"] <= first_step:
                kept.append(line.removesuffix(b"\n") + b"\n")
        elif number < len(lines):
            damaged.append(number)
            kept.append(line)
        else:
            begun = BEGINNING.match(line)
            if begun is None or int(begun[1]) <= first_step:
                damaged.append(number)
    warn_of_damage(path, damaged)
    if kept != lines:
        write_bytes(path, b"".join(kept))


def parse_line(line: bytes, names: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """Return the evaluation of a line, or None where the line is damaged."""
    try:
        evaluation = json.loads(line)
        is_whole = isinstance(evaluation["step"], int) and all(
            isinstance(evaluation[name], int | float) for name in names
        )
    except (ValueError, TypeError, KeyError):
        return None
    return evaluation if is_whole else None


def warn_of_damage(path: Path, numbers: list[int]) -> None:
    """Say which lines of the file are damaged, if any are."""
    if numbers:
        lines = f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:10]))}"
        more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
        logger.warning("%s, %s%s: no evaluation in JSON; skipped", path, lines, more)
