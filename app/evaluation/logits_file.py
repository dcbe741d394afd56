"""The logits of the evaluated splits of a run <-> one file, logits.safetensors. What is said about a run's
quality follows from this file: row ids, labels and logits of each split."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.dataset import Split
from ..errors import InputError
from ..runtime.disk import whole_file

LOGITS = "logits.safetensors"
METADATA = "logits"
ARRAYS = ("rows", "labels", "hashes", "logits")


@dataclass(frozen=True)
class SplitLogits:
    """Of one split: `rows` (num_rows,) int64 ids in the data file's table, `labels` (num_rows, ...) as the
    outcome has them, `hashes` (num_rows,) uint64 of the texts, `logits` (num_rows, num_labels) float32.
    """

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
