"""The rows of a split and their logits -> predictions.csv of a run."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..data.dataset import Split
    from .labelled_outcome import LabelledOutcome


def write_predictions(path: Path, split: Split, logits: np.ndarray, outcome: LabelledOutcome) -> None:
    """Write a CSV line for each row of the split: id, file if there are several, line, text, true and
    predicted label, uncalibrated probabilities. `logits` (num_rows, any), in the order of the rows."""
    table = split.table
    pairs = ["text_pair"] if table.has_pairs else []
    predicted, probabilities = outcome.decide(logits), outcome.probabilities(logits, calibrated=False)
    columns = list(outcome.probability_columns(np.zeros(len(outcome.label_names))))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        files = ["file"] if table.sources else []
        names = [*pairs, outcome.label_column, "predicted", *columns]
        writer.writerow(["row_id", *files, table.row_unit, "text", *names])
        for position, row in enumerate(split.rows):
            texts = [table.text(row)] + [table.pair(row) for _ in pairs]
            answers = [outcome.cell(labels[position]) for labels in (split.labels, predicted)]
            shown = [
                f"{value:.6f}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
                for value in outcome.probability_columns(probabilities[position]).values()
            ]
            place = [*(table.file_of(row) for _ in files), table.line(row)]
            writer.writerow([int(row), *place, *texts, *answers, *shown])
