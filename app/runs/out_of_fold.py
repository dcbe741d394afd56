"""The rows of all folds, each with the logits of the model that was trained without it."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.table import Table
from ..report.logits_file import ARRAYS, SplitLogits
from ..runtime.disk import whole_file
from ..tasks.columns import answers_as_arrow
from ..tasks.scores import Scores
from ..tasks.task import Task
from .results import read_checked_run


@dataclass(frozen=True)
class OutOfFold:
    """Rows with the logits of the model that was trained without them, in the order of their ids; `folds`
    (num_rows,) is the fold of each row. In `scores`, each row has the answer of the run of its fold."""

    table: Table
    task: Task
    folds: np.ndarray
    split: SplitLogits
    scores: Scores


def gather_folds(runs: list[Path], table: Table) -> OutOfFold:
    """Read the test rows of the finished runs of all folds; `table` has the texts of these rows."""
    parts: list[SplitLogits] = []
    predictions = []
    row_ids_by_fold = []
    rows_per_fold = []
    for run in runs:
        task, splits = read_checked_run(run)
        part = splits["test"]
        parts.append(part)
        predictions.append(task.decide(part.logits))
        row_ids_by_fold.append(part.rows)
        rows_per_fold.append(len(part))
    order = np.argsort(np.concatenate(row_ids_by_fold))
    arrays = {}
    for name in ARRAYS:
        joined = np.concatenate([getattr(part, name) for part in parts])
        arrays[name] = joined[order]
    split = SplitLogits(**arrays)
    folds = np.repeat(np.arange(len(runs)), rows_per_fold)[order]
    predicted = np.concatenate(predictions)[order]
    scores = task.score(split.labels, split.logits, predicted)
    return OutOfFold(table, task, folds, split, scores)


def write_out_of_fold(path: Path, rows: OutOfFold) -> None:
    """Write each row to a Parquet file: row_id, file, line, text_hash, fold; label and predicted, whose types
    follow from the task; logits in the order of `label_names`, a JSON list in the file's metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    task = rows.task
    split = rows.split
    row_ids = split.rows.tolist()
    file_names = list(map(rows.table.file_of, row_ids))
    columns = {
        "row_id": split.rows,
        "file": pa.array(file_names, pa.string()).dictionary_encode(),
        "line": rows.table.column("line", row_ids),
        "text_hash": list(map(written_hash, split.hashes.tolist())),
        "fold": rows.folds.astype(np.int32),
        task.answer_column: answers_as_arrow(task, split.labels),
        "predicted": answers_as_arrow(task, rows.scores.predicted),
        "logits": pa.FixedSizeListArray.from_arrays(split.logits.ravel(), split.logits.shape[1]),
    }
    metadata = {"label_names": json.dumps(task.label_names, ensure_ascii=False)}
    with whole_file(path) as file:
        parquet.write_table(pa.table(columns, metadata=metadata), file)


def written_hash(value: int) -> str:
    """Return the hash of a text as files have it: 16 hexadecimal digits after an h, so that no spreadsheet
    takes it for a number."""
    return f"h{value:016x}"
