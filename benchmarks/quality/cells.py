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
from app.evaluation.measures.intervals import Interval, mean_interval, percentiles, resampled_counts
from app.outcomes.label_counts import LabelCounts, distinct_classes
from app.runtime.disk import write_text


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
    low, high = mean_interval(right, np.random.default_rng(0))
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
    predicted = [np.asarray(cell["predicted"]) for cell in (*cells, *others)]
    (truth, *answers), counts = distinct_classes(num_labels, labels, *predicted)
    rows = [LabelCounts.of_classes(truth, answer, num_labels) for answer in answers]

    def change(drawn: np.ndarray) -> np.ndarray:
        """Return the differences of drawn rows, (2, num_resamples)."""
        of_rows = [row.draw(drawn) for row in rows]
        figures = np.array([(of_row.accuracy, of_row.label_f1.mean(axis=1)) for of_row in of_rows])
        return figures[: len(cells)].mean(axis=0) - figures[len(cells) :].mean(axis=0)

    generator = np.random.default_rng(0)
    resampled = np.concatenate([change(drawn) for drawn in resampled_counts(counts, generator)], axis=1)
    measured = change(counts[None])[:, 0]
    return {
        name: (float(value), percentiles(values))
        for name, value, values in zip(("accuracy", "macro_f1"), measured, resampled, strict=True)
    }
