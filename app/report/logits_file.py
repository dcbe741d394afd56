"""The logits of the evaluated splits of a run <-> one file, logits.safetensors. What is said about a run's
quality follows from this file: row ids, labels and logits of each split."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.dataset import Split
from ..errors import InputError
from ..runtime.disk import whole_file
from ..tasks import open_task
from ..tasks.task import Task

LOGITS = "logits.safetensors"
METADATA = "logits"
ARRAYS = ("rows", "labels", "hashes", "logits")
SPLITS = ("test", "dev", "train")  # a report is about the first of these that the run has


@dataclass(frozen=True)
class SplitLogits:
    """Of one split: `rows` (num_rows,) int64 ids in the data file's table, `labels` (num_rows, ...) as the
    task has them, `hashes` (num_rows,) uint64 of the texts, `logits` (num_rows, num_labels) float32."""

    rows: np.ndarray
    labels: np.ndarray
    hashes: np.ndarray
    logits: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


class RunLogits(NamedTuple):
    """What the file has: the splits by name, the labels' names, and `task`, the value of data.task."""

    splits: dict[str, SplitLogits]
    label_names: list[str]
    task: str


def logits_of(split: Split, logits: np.ndarray) -> SplitLogits:
    """Return a split with the logits of its rows, (num_rows, num_labels) float32."""
    hashes = split.table.hashes[split.rows]
    return SplitLogits(np.asarray(split.rows), _numbers(split.labels), hashes, logits)


def _numbers(values: np.ndarray) -> np.ndarray:
    """Return a copy of integers as int64, or of other numbers as float32."""
    return np.array(values, dtype=np.float32 if np.asarray(values).dtype.kind == "f" else np.int64)


def write_logits(
    path: Path, splits: dict[str, SplitLogits], label_names: list[str], step: int, task: str
) -> None:
    """Write the logits of splits, by name, that the model of `step` gave; whole or not at all."""
    from safetensors.numpy import save

    arrays = {}
    for name, split in splits.items():
        for key in ARRAYS:
            values = getattr(split, key)
            # The rest is small, and may be read-only
            values = values if key in ("logits", "hashes") else _numbers(values)
            arrays[f"{name}.{key}"] = np.ascontiguousarray(values)
    # One key only: the library writes several in any order, and equal runs shall leave equal files.
    metadata = {"label_names": label_names, "step": step, "task": task}
    with whole_file(path, "wb") as file:
        file.write(save(arrays, {METADATA: json.dumps(metadata)}))


def read_logits(path: Path) -> RunLogits:
    """Return what the file has; raises InputError for another file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        # Not mapped: a file that is cut short while it is mapped ends the process
        content = path.read_bytes()
        arrays = load(content)
        # Its header, of which the library gives the arrays only
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        metadata = json.loads(header["__metadata__"][METADATA])
        label_names, task = metadata["label_names"], metadata["task"]
        names = dict.fromkeys(key.partition(".")[0] for key in arrays)
        splits = {name: SplitLogits(*(arrays[f"{name}.{key}"] for key in ARRAYS)) for name in names}
    except (OSError, LookupError, ValueError, TypeError, SafetensorError) as error:
        raise InputError(
            f"{path}: the logits of a run are needed, and this file cannot be read: {error!r}"
        ) from error
    return RunLogits(splits, label_names, task)


def read_run(run: Path) -> tuple[Task, dict[str, SplitLogits]]:
    """Return the task of a finished run, which decides as the run does, and its logits by split. Raises
    InputError where there are none, and for damaged files."""
    path = run / LOGITS
    if not path.exists():
        raise InputError(f"{run}: a finished run with {LOGITS} is needed; train it again with this version")
    logits = read_logits(path)
    task = open_task(logits.task, logits.label_names)
    task.read(run)
    return task, logits.splits


def split_of_report(splits: dict) -> str:
    """Return the name of the split, of those by name, that the report of a run is about."""
    return next(name for name in SPLITS if name in splits)


def check_same_rows(one: SplitLogits, other: SplitLogits) -> None:
    """Raise InputError unless two runs were evaluated on the same texts and labels, in the same order."""
    remedy = "compare runs with the same data, split settings and data.split_seed"
    if len(one) != len(other):
        raise InputError(
            f"the runs must have the same test rows, found {len(one):,} and {len(other):,} rows; {remedy}"
        )
    for name, what in (("hashes", "texts"), ("labels", "labels")):
        first, second = (np.asarray(getattr(split, name)).reshape(len(split), -1) for split in (one, other))
        different = int((first != second).any(axis=1).sum())
        if different:
            raise InputError(
                f"the runs must have the same test rows, found other {what} in {different:,} of "
                f"{len(one):,}; {remedy}"
            )


def write_predictions(path: Path, split: Split, logits: np.ndarray, task: Task) -> None:
    """Write a CSV line for each row of the split: id, file if there are several, line, text, true and
    predicted label, uncalibrated probabilities. `logits` (num_rows, any), in the order of the rows."""
    table = split.table
    pairs = ["text_pair"] if table.has_pairs else []
    predicted, probabilities = task.decide(logits), task.probabilities(logits, calibrated=False)
    columns = list(task.probability_columns(np.zeros(len(task.label_names))))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        files = ["file"] if table.sources else []
        names = [*pairs, task.label_column, "predicted", *columns]
        writer.writerow(["row_id", *files, table.row_unit, "text", *names])
        for position, row in enumerate(split.rows):
            texts = [table.text(row)] + [table.pair(row) for _ in pairs]
            answers = [task.cell(labels[position]) for labels in (split.labels, predicted)]
            shown = [
                f"{value:.6f}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
                for value in task.probability_columns(probabilities[position]).values()
            ]
            place = [*(table.file_of(row) for _ in files), table.line(row)]
            writer.writerow([int(row), *place, *texts, *answers, *shown])
