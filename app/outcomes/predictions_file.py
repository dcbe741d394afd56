"""The rows of a split and their logits -> predictions.csv of a run, and columns of probabilities."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..data.dataset import Split
    from .labelled_outcome import LabelledOutcome


def write_predictions(path: Path, split: Split, logits: np.ndarray, outcome: LabelledOutcome) -> None:
    """Write a CSV with a line for each row of the split: id, line in the source, text, true and predicted
    label, probabilities as the model gives them.

    `logits` (num_rows, any), in the order of the split's rows.
    """
    table = split.table
    pairs = ["text_pair"] if table.has_pairs else []
    predicted, probabilities = outcome.decide(logits), outcome.probabilities(logits, calibrated=False)
    columns = list(probability_columns(outcome.label_names, probabilities[0])) if len(probabilities) else []
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["row_id", table.row_unit, "text", *pairs, outcome.label_column, "predicted", *columns]
        )
        for position, row in enumerate(split.rows):
            texts = [table.text(row)] + [table.pair(row) for _ in pairs]
            answers = [outcome.cell(labels[position]) for labels in (split.labels, predicted)]
            by_label = (f"{probability:.6f}" for probability in probabilities[position])
            writer.writerow([int(row), int(table.lines[row]), *texts, *answers, *by_label])


def probability_columns(label_names: list[str], probabilities: np.ndarray) -> dict[str, float]:
    """Return the probability of each label of one row, (num_labels,), by the name of its column."""
    return {
        f"p_{name}": round(float(probability), 6)
        for name, probability in zip(label_names, probabilities, strict=True)
    }
