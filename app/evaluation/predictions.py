"""The rows of a split and their logits -> a CSV file of predictions."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from ..data.dataset import Split
from .metrics import probabilities


def write_predictions(path: Path, split: Split, logits: np.ndarray, label_names: list[str]) -> None:
    """Write a CSV with a line for each row of the split: id, line in the source, text, true and predicted
    label, probabilities.

    `logits` (num_rows, num_labels), in the order of the split's rows.
    """
    row_probabilities = probabilities(logits)
    pairs = ["text_pair"] if split.table.has_pairs else []
    lines = split.table.lines
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "row_id",
                split.table.row_unit,
                "text",
                *pairs,
                "label",
                "predicted",
                *(f"p_{name}" for name in label_names),
            ]
        )
        for position, row in enumerate(split.rows):
            texts = [split.table.text(row)] + [split.table.pair(row) for _ in pairs]
            label = label_names[int(split.labels[position])]
            predicted = label_names[int(logits[position].argmax())]
            by_label = (f"{probability:.6f}" for probability in row_probabilities[position])
            writer.writerow([int(row), int(lines[row]), *texts, label, predicted, *by_label])
