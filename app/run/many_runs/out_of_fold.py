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
from ...evaluation.logits_file import LOGITS, SplitLogits
from ...outcomes.finished_run import read_run
from ...outcomes.labelled_outcome import LabelledOutcome

OOF = "oof.parquet"
# Logits in memory at once
CHUNK_NUMBERS = 1 << 22


@dataclass(frozen=True)
class OutOfFold:
    """Rows with the logits of the model that was trained without them, in the order of their ids.

    `rows`, `labels`, `hashes` and `logits` as in `SplitLogits`; `folds` (num_rows,) is the fold of each row.
    `predicted` are the answers of the fold's run, by its own decision. `outcome` has not decided them.
    """

    table: Table
    outcome: LabelledOutcome
    folds: np.ndarray
    split: SplitLogits
    predicted: np.ndarray

    def scores(self, rows: np.ndarray | slice = slice(None)) -> Any:
        """Return the scores of all rows, or of those at `rows`."""
        split = self.split
        return self.outcome.score(split.labels[rows], split.logits[rows], self.predicted[rows])


def gather_folds(runs: dict[int, Path], datasets: list[Dataset]) -> OutOfFold:
    """Return the out-of-fold rows of finished runs, by fold; raises InputError for other rows."""
    parts, predicted, names = [], [], datasets[0].label_names
    for fold, run in runs.items():
        outcome, splits = read_run(run)
        tested = datasets[fold].splits["test"]
        part = splits.get("test")
        is_same = part is not None and all(
            np.array_equal(getattr(part, name), getattr(tested, name)) for name in ("rows", "labels")
        )
        if outcome.label_names != names or not is_same:
            raise InputError(
                f"{run / LOGITS}: the rows and labels of fold {fold} are needed, found others; remove this "
                "run, or choose another output.dir"
            )
        parts.append(part)
        predicted.append(outcome.decide(part.logits))
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    folds = np.repeat(list(runs), [len(part) for part in parts])[order]
    labels, hashes = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("labels", "hashes")
    )
    logits = np.empty((len(rows), parts[0].logits.shape[1]), np.float32)
    places = np.empty(len(rows), np.int64)
    places[order] = np.arange(len(rows))
    start = 0
    for part in parts:
        logits[places[start : start + len(part)]] = part.logits
        start += len(part)
    split = SplitLogits(rows[order], labels, hashes, logits)
    table, answers = datasets[0].splits["test"].table, np.concatenate(predicted)[order]
    return OutOfFold(table, outcome.without_fit(), folds, split, answers)


def write_oof(path: Path, rows_of_folds: OutOfFold) -> None:
    """Write each row to a Parquet file: row_id, file, line, text_hash, fold, label and predicted, typed by
    the outcome, logits in the order of `label_names`, which the file's metadata have as JSON."""
    import pyarrow as pa
    from pyarrow import parquet

    outcome, split = rows_of_folds.outcome, rows_of_folds.split
    label_type, num_logits = outcome.arrow_type(), split.logits.shape[1]
    schema = pa.schema(
        {
            "row_id": pa.int64(),
            "file": pa.dictionary(pa.int32(), pa.string()),
            "line": pa.int64(),
            "text_hash": pa.string(),
            "fold": pa.int32(),
            outcome.label_column: label_type,
            "predicted": label_type,
            "logits": pa.list_(pa.float32(), num_logits),
        },
        {"label_names": json.dumps(outcome.label_names, ensure_ascii=False)},
    )
    table, step = rows_of_folds.table, max(1, CHUNK_NUMBERS // num_logits)
    aside = path.with_name(f".{path.name}")
    with parquet.ParquetWriter(aside, schema) as writer:
        for start in range(0, len(split), step):
            part = slice(start, start + step)
            rows, logits = split.rows[part], split.logits[part]
            labels = (
                outcome.arrow_array(of_rows[part]) for of_rows in (split.labels, rows_of_folds.predicted)
            )
            columns = [
                pa.array(rows),
                pa.array(map(table.file_of, rows.tolist()), pa.string()).dictionary_encode(),
                pa.array(table.lines[rows]),
                pa.array([written_hash(value) for value in split.hashes[part].tolist()]),
                pa.array(rows_of_folds.folds[part].astype(np.int32)),
                *labels,
                pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), num_logits),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    aside.replace(path)
