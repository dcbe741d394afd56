"""What is said of the rows of several runs: for one label a row, and for label sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ...evaluation.labels.issues import LabelIssues, find_label_issues, least_plausible, score_labels
from ...evaluation.labels.planted import choose_flips, choose_set_flips
from ...evaluation.labels.set_issues import find_set_issues, score_sets
from ...evaluation.logits_file import SplitLogits
from ...evaluation.measures.row_scores import score_rows
from ...evaluation.measures.seed_spread import Spread, seed_spread
from ...evaluation.measures.summary import NAMES as CLASS_NAMES
from ...evaluation.measures.summary import summarize
from ...evaluation.metrics import compute_metrics
from ...evaluation.multi_label.decisions import read_rule
from ...evaluation.multi_label.intervals import label_set_spread
from ...evaluation.multi_label.metrics import row_set_metrics
from ...evaluation.multi_label.predictions import list_of
from ...evaluation.multi_label.row_sets import NAMES as SET_NAMES
from ...evaluation.multi_label.row_sets import RowSets, decide_rows, summarize_sets

NAMES = CLASS_NAMES | SET_NAMES
MAX_PATTERNS = 1000


class Classes:
    """One label a row: labels and predictions are class ids (num_rows,).

    `shown` are the figures of each fold; `note` says how its rows were decided, where people must know.
    """

    shown: tuple[str, ...] = ("accuracy", "macro_f1", "loss")
    note: str | None = None

    def predict(self, part: SplitLogits, run: Path, names: list[str]) -> np.ndarray:
        """Return what the model of a run predicts for rows that it was evaluated on."""
        return np.asarray(part.logits).argmax(axis=1)

    def measure(
        self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray, names: list[str]
    ) -> dict:
        """Return the metrics of rows."""
        return compute_metrics(labels, logits, names)

    def summary(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> dict:
        """Return `intervals`, 95 %, by the name of the figure, and figures that only they are about."""
        return summarize(score_rows(labels, logits), logits.shape[1])

    def spread(self, labels: np.ndarray, predicted: list[np.ndarray], num_labels: int) -> dict[str, Spread]:
        """Return the spread of the predictions of several seeds."""
        return seed_spread(labels, predicted, num_labels)

    def find_issues(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> LabelIssues:
        """Return which labels may be wrong, given predictions and logits of models without these rows."""
        return find_label_issues(labels, logits)

    def ranking(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Return the positions of the rows that are predicted otherwise, the least plausible label first."""
        score, found = score_labels(labels, logits)
        return least_plausible(found != labels, score)

    def patterns(self, issues: LabelIssues, names: list[str]) -> dict:
        """Return which mistakes are frequent, as JSON has them."""
        overlaps = [{"classes": [names[a], names[b]], "rows": rows} for a, b, rows in issues.overlaps]
        return {"overlapping_classes": overlaps[:MAX_PATTERNS]}

    def flips(
        self, labels: np.ndarray, hashes: np.ndarray, num_labels: int, fraction: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return positions of rows to flip, and the wrong labels they get."""
        return choose_flips(labels, hashes, num_labels, fraction, seed)

    def cell(self, label: np.ndarray, names: list[str]) -> str:
        """Return the label of a row as files have it."""
        return names[int(label)]

    def label_columns(self) -> tuple[str, Any]:
        """Return the name of the column of labels in oof.parquet, and the type of labels and predictions
        there."""
        import pyarrow as pa

        return "label", pa.dictionary(pa.int32(), pa.string())

    def labels_array(self, labels: np.ndarray, names: list[str]) -> Any:
        """Return labels or predictions as a column of oof.parquet."""
        import pyarrow as pa

        return pa.DictionaryArray.from_arrays(np.asarray(labels, np.int32), pa.array(names, pa.string()))


class LabelSets(Classes):
    """Any number of labels a row: labels and predictions are (num_rows, num_labels) 0 and 1."""

    shown = ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy", "loss")
    note = (
        "Each run decides by its own thresholds (thresholds.json), which have the best F1 of each label on "
        "its dev rows; without "
        "dev rows they are 0.5."
    )

    def predict(self, part: SplitLogits, run: Path, names: list[str]) -> np.ndarray:
        return decide_rows(part.labels, part.logits, read_rule(run, names)).predicted

    def measure(
        self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray, names: list[str]
    ) -> dict:
        return row_set_metrics(RowSets(labels.astype(bool), predicted, logits), names)

    def summary(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> dict:
        return summarize_sets(RowSets(labels.astype(bool), predicted, logits))

    def spread(self, labels: np.ndarray, predicted: list[np.ndarray], num_labels: int) -> dict[str, Spread]:
        return label_set_spread(labels, predicted)

    def find_issues(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> LabelIssues:
        return find_set_issues(labels, logits, predicted)

    def ranking(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> np.ndarray:
        return least_plausible((predicted != labels).any(axis=1), score_sets(labels, logits))

    def patterns(self, issues: LabelIssues, names: list[str]) -> dict:
        """Return in how many rows each label is taken for left out or put in by mistake, the most first."""
        counts = [
            (kind, label, int(rows))
            for kind in ("missing", "extra")
            for label, rows in enumerate(getattr(issues, kind))
        ]
        counts.sort(key=lambda one: -one[2])
        found = [{"label": names[label], "kind": kind, "rows": rows} for kind, label, rows in counts if rows]
        return {"wrong_labels": found[:MAX_PATTERNS]}

    def flips(
        self, labels: np.ndarray, hashes: np.ndarray, num_labels: int, fraction: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return choose_set_flips(labels, hashes, fraction, seed)

    def cell(self, label: np.ndarray, names: list[str]) -> str:
        """Return the labels of a row as a JSON list."""
        return json.dumps(list_of(label, names), ensure_ascii=False)

    def label_columns(self) -> tuple[str, Any]:
        import pyarrow as pa

        return "labels", pa.list_(pa.string())

    def labels_array(self, labels: np.ndarray, names: list[str]) -> Any:
        import pyarrow as pa

        rows, ids = np.nonzero(labels)
        ends = np.searchsorted(rows, np.arange(len(labels) + 1))
        found = pa.DictionaryArray.from_arrays(ids.astype(np.int32), pa.array(names, pa.string()))
        return pa.ListArray.from_arrays(ends.astype(np.int32), found.dictionary_decode())


def outcomes_of(labels: np.ndarray) -> Classes:
    """Return what is said of rows with these labels."""
    return LabelSets() if labels.ndim == 2 else Classes()
