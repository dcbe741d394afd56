"""Finished results, one JSON file for each system, job and seed, what is summed up of them, and how two
systems differ."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np

from app.data.cache import content_key
from app.report.bootstrap import Interval, drawn_together, percentiles, resampled_means
from app.runtime.disk import write_text
from app.tasks import open_task
from app.tasks.task import Scores


def cell_folder(out: Path, job: str, system: str, key: str) -> Path:
    """Return the folder of a system on a job; another content of the data, other settings or another version
    of the program (`key`) have another one."""
    readable = re.sub(r"[^\w.-]+", "-", f"{Path(job).stem}-{system}").strip("-")[-80:]
    return out / f"{readable}-{content_key(job, system, key)[:8]}"


def finished_or(path: Path, work: Callable[[], dict]) -> dict:
    """Return the result in a file; unless it is there, that of `work`, which is then kept."""
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    result = work()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(result, ensure_ascii=False, indent=1) + "\n")
    return result


def scores(labels: np.ndarray, predicted: np.ndarray, num_labels: int) -> dict:
    """Return accuracy, macro F1 and, for the interval over seeds, the predictions themselves."""
    from sklearn.metrics import f1_score

    macro_f1 = f1_score(labels, predicted, labels=np.arange(num_labels), average="macro", zero_division=0)
    accuracy = float((labels == predicted).mean())
    return {"accuracy": accuracy, "macro_f1": float(macro_f1), "predicted": predicted.tolist()}


def summarise(cells: list[dict], labels: np.ndarray) -> dict:
    """Return mean and standard deviation over seeds, the mean minutes, and the 95 % interval of the mean
    accuracy.

    The interval is over test rows: it says how far the mean of these seeds would move with other rows.
    """
    right = np.mean([np.asarray(cell["predicted"]) == labels for cell in cells], axis=0)
    low, high = percentiles(resampled_means(right, np.random.default_rng(0)))
    summary = {"seeds": len(cells), "interval": [low, high]}
    for name in ("accuracy", "macro_f1", "minutes"):
        values = [cell[name] for cell in cells]
        summary[name] = statistics.fmean(values)
        summary[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return summary


def differences(
    labels: np.ndarray, cells: list[dict], others: list[dict], num_labels: int
) -> dict[str, tuple[float, Interval]]:
    """Return how much more accuracy and macro F1 `cells` have than `others`, both the mean over their seeds,
    with the 95 % paired bootstrap interval over the test rows.

    `labels` (num_rows,) are the class ids of the test rows. A resample has the same rows for all.
    """
    task = open_task("single_label", [str(label) for label in range(num_labels)])
    predicted = [np.asarray(cell["predicted"]) for cell in (*cells, *others)]
    no_loss = np.zeros(len(labels))
    scores = [Scores(labels, answers, answers == labels, no_loss) for answers in predicted]
    weights = np.repeat([1 / len(cells), -1 / len(others)], [len(cells), len(others)])
    return {
        name: (float(weights @ values), percentiles(drawn))
        for name, values, drawn in drawn_together(task, scores, weights)
        if name in ("accuracy", "macro_f1")
    }
