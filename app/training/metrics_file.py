"""metrics.jsonl: the evaluations of a run, one JSON object a line."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..runtime.disk import checked_value, parse_json, write_text

logger = logging.getLogger(__name__)
METRICS_FILE = "metrics.jsonl"


def read_evaluations(path: Path, metrics: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the evaluations in metrics.jsonl, if it is there: objects with a step and, where `metrics` are
    asked for, with a split and these numbers. A warning names each damaged line."""
    if not path.exists():
        return []
    fields: dict[str, Any] = {"step": int}
    if metrics:
        fields |= {"split": str} | dict.fromkeys(metrics, float)
    evaluations = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            evaluation = parse_json(line.decode(), path, fields, "")
            checked_value(evaluation.get("train_loss", 0.0), float, path, "train_loss", "")
        except ValueError:
            logger.warning("%s, line %d: no evaluation in JSON; skipped", path, number)
            continue
        evaluations.append(evaluation)
    return evaluations


def add_evaluation(path: Path, evaluation: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line_of(evaluation))


def remove_later_evaluations(path: Path, last_step: int) -> None:
    """Remove the lines of evaluations after `last_step`, which a resumed run makes again, and damaged lines.
    At the start of a run, where `last_step` is 0, none stays."""
    if not path.exists():
        return
    lines = []
    for evaluation in read_evaluations(path):
        if last_step and evaluation["step"] <= last_step:
            lines.append(line_of(evaluation))
    write_text(path, "".join(lines))


def line_of(evaluation: dict[str, Any]) -> str:
    return json.dumps(evaluation, ensure_ascii=False) + "\n"
