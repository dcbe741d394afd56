"""The logits of all folds -> one row for each row of the train file, and oof.parquet."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...data.relabel import written_hash
from ...data.table import Table
from ...errors import InputError
from ...report.logits_file import LOGITS, SplitLogits, read_run
from ...runtime.disk import whole_file
from ...tasks.task import Task

OOF = "oof.parquet"


@dataclass(frozen=True)
class OutOfFold:
    """Rows with the logits of the model that was trained without them, in the order of their ids.

    `rows`, `labels`, `hashes` and `logits` as in `SplitLogits`; `folds` (num_rows,) is the fold of each row.
    `predicted` are the answers of the fold's run, by its own decision. `task` has not decided them.
    """

    table: Table
    task: Task
    folds: np.ndarray
    split: SplitLogits
    predicted: np.ndarray

    def scores(self, rows: np.ndarray | slice = slice(None)) -> Any:
        """Return the scores of all rows, or of those at `rows`."""
        split = self.split
        return self.task.score(split.labels[rows], split.logits[rows], self.predicted[rows])


def gather_folds(runs: list[Path], datasets: list[Dataset]) -> OutOfFold:
    """Return the out-of-fold rows of the finished run of each fold; raises InputError for other rows."""
    parts, predicted, names = [], [], datasets[0].label_names
    for fold, (run, dataset) in enumerate(zip(runs, datasets, strict=True)):
        task, splits = read_run(run)
        tested = dataset.splits["test"]
        part = splits.get("test")
        is_same = part is not None and all(
            np.array_equal(getattr(part, name), getattr(tested, name)) for name in ("rows", "labels")
        )
        if task.label_names != names or not is_same:
            raise InputError(
                f"{run / LOGITS}: the rows and labels of fold {fold} are needed, found others; remove this "
                "run, or choose another output.dir"
            )
        parts.append(part)
        predicted.append(task.decide(part.logits))
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    folds = np.repeat(np.arange(len(runs)), [len(part) for part in parts])[order]
    labels, hashes, logits = (
        np.concatenate([getattr(part, name) for part in parts])[order]
        for name in ("labels", "hashes", "logits")
    )
    split = SplitLogits(rows[order], labels, hashes, logits)
    table, answers = datasets[0].splits["test"].table, np.concatenate(predicted)[order]
    return OutOfFold(table, task.without_fit(), folds, split, answers)


def write_oof(path: Path, rows_of_folds: OutOfFold) -> None:
    """Write each row to a Parquet file: row_id, file, line, text_hash, fold, label and predicted, typed by
    the task, logits in the order of `label_names`, which the file's metadata have as JSON."""
    import pyarrow as pa
    from pyarrow import parquet

    task, split, table = rows_of_folds.task, rows_of_folds.split, rows_of_folds.table
    files = pa.array(map(table.file_of, split.rows.tolist()), pa.string())
    columns = {
        "row_id": split.rows,
        "file": files.dictionary_encode(),
        "line": [table.line(row) for row in split.rows.tolist()],
        "text_hash": [written_hash(value) for value in split.hashes.tolist()],
        "fold": rows_of_folds.folds.astype(np.int32),
        task.label_column: task.arrow_array(split.labels),
        "predicted": task.arrow_array(rows_of_folds.predicted),
        "logits": pa.FixedSizeListArray.from_arrays(split.logits.ravel(), split.logits.shape[1]),
    }
    names = {"label_names": json.dumps(task.label_names, ensure_ascii=False)}
    with whole_file(path, "wb") as file:
        parquet.write_table(pa.table(columns, metadata=names), file)
