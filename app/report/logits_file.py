"""The logits of the evaluated splits of a run <-> one file, logits.safetensors. All figures about a run's
quality follow from this file: row ids, labels and logits of each split."""

from __future__ import annotations

import io
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.dataset import Split
from ..errors import InputError
from ..runtime.disk import CSV_ENCODING, whole_file
from ..tasks import open_task
from ..tasks.columns import probability_columns
from ..tasks.decision_file import read_decision_file
from ..tasks.task import Task
from .predictions_file import PredictionsFile

LOGITS = "logits.safetensors"
METADATA = "logits"  # the key of the file's own metadata
ARRAYS = ("rows", "labels", "hashes", "logits")
HEADER_SIZE_BYTES = 8  # at the start of a safetensors file, little-endian
PREFERRED_SPLITS = ("test", "dev", "train")  # a report is about the first of these that the run has


@dataclass(frozen=True)
class SplitLogits:
    """The logits of one split: `rows` (num_rows,) int64 are ids in the data file's table, `labels` (num_rows,
    ...) as the task has them, `hashes` (num_rows,) uint64 of the texts, and `logits` (num_rows, num_labels)
    float32."""

    rows: np.ndarray
    labels: np.ndarray
    hashes: np.ndarray
    logits: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


def logits_of(split: Split, logits: np.ndarray) -> SplitLogits:
    """Join the rows of a split with their logits, which are in the same order."""
    labels = np.asarray(split.labels)
    label_type = np.float32 if labels.dtype.kind == "f" else np.int64
    return SplitLogits(
        rows=np.array(split.rows, np.int64),
        labels=labels.astype(label_type),
        hashes=split.table.hashes[split.rows],
        logits=logits,
    )


def write_logits(path: Path, splits: dict[str, SplitLogits], task: Task, step: int) -> None:
    """Write the logits of splits, by name, that the model of `step` gave; whole or not at all."""
    from safetensors.numpy import save

    arrays = {}
    for name, split in splits.items():
        for key in ARRAYS:
            arrays[f"{name}.{key}"] = np.ascontiguousarray(getattr(split, key))
    # The library writes several keys in any order, and equal runs shall leave equal files: there is one only.
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
        splits = splits_of_arrays(load(content))
        metadata = read_metadata(content)
        task = open_task(metadata["task"], metadata["label_names"])
    except (OSError, LookupError, ValueError, TypeError, RecursionError, SafetensorError) as error:
        raise InputError(
            f"{path}: the logits of a finished run are needed, and this file cannot be read: {error!r}; "
            "train it again with this version"
        ) from error
    read_decision_file(run, task)
    return task, splits


def splits_of_arrays(arrays: dict[str, np.ndarray]) -> dict[str, SplitLogits]:
    """Return the logits by split; the names of arrays are those that `write_logits` gives them."""
    splits = {}
    for array_name in arrays:
        name = array_name.partition(".")[0]
        if name not in splits:
            splits[name] = SplitLogits(**{key: arrays[f"{name}.{key}"] for key in ARRAYS})
    return splits


def read_metadata(content: bytes) -> dict:
    """Return what `write_logits` says beside the arrays: the library does not give it, so it is read from the
    header of the file."""
    size = int.from_bytes(content[:HEADER_SIZE_BYTES], "little")
    header = json.loads(content[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + size])
    return json.loads(header["__metadata__"][METADATA])


def split_of_report(splits: Container[str]) -> str:
    """Return the split that the report of a run is about; `splits` are the names of those it has."""
    return next(name for name in PREFERRED_SPLITS if name in splits)


def check_same_rows(rows_a: SplitLogits, rows_b: SplitLogits) -> None:
    """Raise InputError unless two runs were evaluated on the same texts and labels, in the same order."""
    has_same_texts = np.array_equal(rows_a.hashes, rows_b.hashes)
    has_same_labels = np.array_equal(rows_a.labels, rows_b.labels)
    if not has_same_texts or not has_same_labels:
        raise InputError(
            f"the runs must have the same test rows, found other texts or labels in {len(rows_a):,} and "
            f"{len(rows_b):,} rows; compare runs with the same data, split settings and data.split_seed"
        )


def write_predictions(path: Path, split: Split, logits: np.ndarray, task: Task) -> None:
    """Write a CSV file, whole or not at all, with a line for each row of the split: id, file if there are
    several, line, text, true and predicted label, uncalibrated probabilities. `logits` (num_rows, any), in
    the order of the rows."""
    columns = row_columns(split)
    all_values = zip(*columns.values(), strict=True)
    answers = task.decide(logits)
    probabilities = task.probabilities(logits, calibrated=False)
    added_names = list(probability_columns(task, probabilities[0]))
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding=CSV_ENCODING, newline="")
        predictions = PredictionsFile(text, task, columns, added_names)
        rows = zip(all_values, split.labels, answers, probabilities, strict=True)
        for row_values, label, answer, row_probabilities in rows:
            added = probability_columns(task, row_probabilities)
            predictions.write(row_values, task.cell_text(label), task.cell_text(answer), added.values())
        # Else it would close the file before that is forced to the disk
        text.detach()


def row_columns(split: Split) -> dict[str, Sequence]:
    """Return what predictions.csv says of the rows of a split before their answers, by column."""
    table = split.table
    row_ids = np.asarray(split.rows).tolist()
    columns: dict[str, Sequence] = {"row_id": row_ids}
    if len(table.sources) > 1:
        columns["file"] = [table.file_of(row_id) for row_id in row_ids]
    columns[table.unit] = table.column("line", row_ids)
    columns["text"] = table.column("text", row_ids)
    if table.has_pairs:
        columns["text_pair"] = table.column("pair", row_ids)
    return columns
