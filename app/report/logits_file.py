"""The logits of the evaluated splits of a run <-> one file, logits.safetensors. What is said about a run's
quality follows from this file: row ids, labels and logits of each split."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.dataset import Split
from ..errors import InputError
from ..runtime.disk import whole_file
from ..tasks import open_task
from ..tasks.columns import probability_columns
from ..tasks.decision_file import read_decision_file
from ..tasks.task import Task
from .predictions_file import PredictionsFile

LOGITS, METADATA = "logits.safetensors", "logits"
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


def logits_of(split: Split, logits: np.ndarray) -> SplitLogits:
    labels = np.asarray(split.labels)
    labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64)
    return SplitLogits(np.array(split.rows, np.int64), labels, split.table.hashes[split.rows], logits)


def write_logits(path: Path, splits: dict[str, SplitLogits], task: Task, step: int) -> None:
    """Write the logits of splits, by name, that the model of `step` gave; whole or not at all."""
    from safetensors.numpy import save

    of_splits = {f"{name}.{key}": getattr(of, key) for name, of in splits.items() for key in ARRAYS}
    arrays = {name: np.ascontiguousarray(array) for name, array in of_splits.items()}
    # One key only: the library writes several in any order, and equal runs shall leave equal files.
    metadata = {"label_names": task.label_names, "step": step, "task": task.name}
    with whole_file(path) as file:
        file.write(save(arrays, {METADATA: json.dumps(metadata)}))


def read_run(run: Path) -> tuple[Task, dict[str, SplitLogits]]:
    """Return the task of a finished run, which decides as the run does, and its logits by split. Raises
    InputError where there are none, and for damaged files."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = run / LOGITS
    try:
        # Not mapped: a file that is cut short while it is mapped ends the process
        content = path.read_bytes()
        arrays = load(content)
        # Its header, of which the library gives the arrays only
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        metadata = json.loads(header["__metadata__"][METADATA])
        names = dict.fromkeys(key.partition(".")[0] for key in arrays)
        splits = {name: SplitLogits(*(arrays[f"{name}.{key}"] for key in ARRAYS)) for name in names}
        task = open_task(metadata["task"], metadata["label_names"])
    except (OSError, LookupError, ValueError, TypeError, RecursionError, SafetensorError) as error:
        raise InputError(
            f"{path}: the logits of a finished run are needed, and this file cannot be read: {error!r}; "
            "train it again with this version"
        ) from error
    read_decision_file(run, task)
    return task, splits


def split_of_report(splits: dict) -> str:
    return next(name for name in SPLITS if name in splits)


def check_same_rows(one: SplitLogits, other: SplitLogits) -> None:
    """Raise InputError unless two runs were evaluated on the same texts and labels, in the same order."""
    if not all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("hashes", "labels")):
        raise InputError(
            f"the runs must have the same test rows, found other texts or labels in {len(one):,} and "
            f"{len(other):,} rows; compare runs with the same data, split settings and data.split_seed"
        )


def write_predictions(path: Path, split: Split, logits: np.ndarray, task: Task) -> None:
    """Write a CSV file, whole or not at all, with a line for each row of the split: id, file if there are
    several, line, text, true and predicted label, uncalibrated probabilities. `logits` (num_rows, any), in
    the order of the rows."""
    table = split.table
    row_ids = np.asarray(split.rows).tolist()
    columns: dict[str, Sequence] = {"row_id": row_ids}
    if len(table.sources) > 1:
        columns["file"] = [table.file_of(row_id) for row_id in row_ids]
    columns[table.row_unit] = table.column("line", row_ids)
    columns["text"] = table.column("text", row_ids)
    if table.has_pairs:
        columns["text_pair"] = table.column("pair", row_ids)
    row_values = zip(*columns.values(), strict=True)
    probabilities = task.probabilities(logits, calibrated=False)
    added_names = list(probability_columns(task, probabilities[0]))
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        predictions = PredictionsFile(text, task, columns, added_names)
        rows = zip(row_values, split.labels, task.decide(logits), probabilities, strict=True)
        for values, label, answer, of_row in rows:
            added = probability_columns(task, of_row)
            predictions.write(values, task.cell_text(label), task.cell_text(answer), added.values())
        # Else it would close the file before that is forced to the disk
        text.detach()
