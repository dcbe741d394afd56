"""The logits of all folds -> one row for each row of the train file, and oof.parquet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...data.dataset import Dataset
from ...data.relabel import written_hash
from ...data.table import Table
from ...errors import InputError
from ...evaluation.logits_file import LOGITS, SplitLogits, read_logits
from .outcomes import Classes, outcomes_of

OOF = "oof.parquet"
# Logits in memory at once
CHUNK_NUMBERS = 1 << 22


@dataclass(frozen=True)
class OutOfFold:
    """Rows with the logits of the model that was trained without them, in the order of their ids.

    `rows`, `labels`, `hashes` and `logits` as in `SplitLogits`; `folds` (num_rows,) is the fold of each row.
    `predicted` are class ids (num_rows,), or of label sets (num_rows, num_labels) bool, by the thresholds of
    the fold's run.
    """

    table: Table
    label_names: list[str]
    folds: np.ndarray
    split: SplitLogits
    predicted: np.ndarray

    @property
    def outcomes(self) -> Classes:
        """What is said of these rows."""
        return outcomes_of(self.split.labels)


def gather_folds(runs: dict[int, Path], datasets: list[Dataset]) -> OutOfFold:
    """Return the out-of-fold rows of finished runs, by fold; raises InputError where a run tested other rows
    than its fold."""
    parts, predicted, names = [], [], datasets[0].label_names
    for fold, run in runs.items():
        splits, found_names = read_logits(run / LOGITS)
        tested = datasets[fold].splits["test"]
        part = splits.get("test")
        is_same = part is not None and all(
            np.array_equal(getattr(part, name), getattr(tested, name)) for name in ("rows", "labels")
        )
        if found_names != names or not is_same:
            raise InputError(
                f"{run / LOGITS}: the rows and labels of fold {fold} are needed, found others; remove this "
                "run, or choose another "
                "output.dir"
            )
        parts.append(part)
        predicted.append(outcomes_of(part.labels).predict(part, run, names))
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    folds = np.repeat(list(runs), [len(part) for part in parts])[order]
    labels, hashes = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("labels", "hashes")
    )
    logits = np.empty((len(rows), len(names)), np.float32)
    places = np.empty(len(rows), np.int64)
    places[order] = np.arange(len(rows))
    start = 0
    for part in parts:
        logits[places[start : start + len(part)]] = part.logits
        start += len(part)
    split = SplitLogits(rows[order], labels, hashes, logits)
    return OutOfFold(datasets[0].splits["test"].table, names, folds, split, np.concatenate(predicted)[order])


def write_oof(path: Path, found: OutOfFold) -> None:
    """Write a Parquet file with a row for each row: row_id, file, line, text_hash, fold, label, predicted,
    logits.

    Of label sets, `labels` and `predicted` are lists of names. `logits` is a list of numbers in the order of
    `label_names`, which the file's metadata have as JSON.
    """
    import pyarrow as pa
    from pyarrow import parquet

    num_labels = len(found.label_names)
    name, label_type = found.outcomes.label_columns()
    schema = pa.schema(
        {
            "row_id": pa.int64(),
            "file": pa.dictionary(pa.int32(), pa.string()),
            "line": pa.int64(),
            "text_hash": pa.string(),
            "fold": pa.int32(),
            name: label_type,
            "predicted": label_type,
            "logits": pa.list_(pa.float32(), num_labels),
        },
        {"label_names": json.dumps(found.label_names, ensure_ascii=False)},
    )
    files = pa.array([found.table.source], pa.string())
    split, step = found.split, max(1, CHUNK_NUMBERS // num_labels)
    aside = path.with_name(f".{path.name}")
    with parquet.ParquetWriter(aside, schema) as writer:
        for start in range(0, len(split), step):
            part = slice(start, start + step)
            rows, logits = split.rows[part], split.logits[part]
            labels = (
                found.outcomes.labels_array(of_rows[part], found.label_names)
                for of_rows in (split.labels, found.predicted)
            )
            columns = [
                pa.array(rows),
                pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), files),
                pa.array(found.table.lines[rows]),
                pa.array([written_hash(value) for value in split.hashes[part].tolist()]),
                pa.array(found.folds[part].astype(np.int32)),
                *labels,
                pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), num_labels),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    aside.replace(path)
