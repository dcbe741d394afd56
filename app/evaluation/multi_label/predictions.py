"""The rows of a split, with label sets, and their logits -> a CSV file of predictions."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from ...data.dataset import Split
from .decisions import LabelRule, sigmoid


def write_label_sets(
    path: Path, split: Split, logits: np.ndarray, rule: LabelRule, label_names: list[str]
) -> None:
    """Write a CSV with a line for each row of the split: id, line in the source, text, true and predicted
    labels, probabilities.

    `logits` (num_rows, num_labels), in the order of the split's rows. Label sets are JSON lists.
    """
    table = split.table
    pairs = ["text_pair"] if table.has_pairs else []
    probabilities = sigmoid(logits)
    predicted = rule.decide(probabilities)
    columns = [
        "row_id",
        table.row_unit,
        "text",
        *pairs,
        "labels",
        "predicted",
        *(f"p_{name}" for name in label_names),
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for position, row in enumerate(split.rows):
            texts = [table.text(row)] + [table.pair(row) for _ in pairs]
            sets = (list_of(chosen, label_names) for chosen in (split.labels[position], predicted[position]))
            by_label = (f"{probability:.6f}" for probability in probabilities[position])
            cells = (json.dumps(names, ensure_ascii=False) for names in sets)
            writer.writerow([int(row), int(table.lines[row]), *texts, *cells, *by_label])


def list_of(chosen: np.ndarray, label_names: list[str]) -> list[str]:
    """Return the names of the labels that a row has; `chosen` (num_labels,) is true or 1 for them."""
    return [label_names[label] for label in np.flatnonzero(chosen)]
