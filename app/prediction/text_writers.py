"""Rows with predictions as text: CSV, JSON Lines, and lines for people."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TextIO

from ..data.cells import as_text, json_text
from ..data.row_cells import free_names
from ..errors import shorten
from ..report.predictions_file import added_cell
from ..tasks.columns import prediction_columns, ranked_labels
from ..text_table import short_label
from .added_columns import TAKEN, AddedColumns, rows_with_predictions
from .predictor import Prediction
from .sources import Source

MAX_LABELS = 10  # labels that are listed below a prediction for people


def write_csv(file: TextIO, source: Source, added: AddedColumns, predictions: Iterable[Prediction]) -> None:
    """Write rows with their predictions as CSV: lists and objects as JSON, probabilities with six digits."""
    writer = csv.writer(file)
    writer.writerow([*source.names, *added.names])
    # The columns of the input and the answer are written as they are
    num_unrounded = len(source.names) + 1
    for row in rows_with_predictions(source, added, predictions):
        cells = [as_text(value) for value in row[:num_unrounded]]
        cells += [added_cell(value) for value in row[num_unrounded:]]
        writer.writerow(cells)


def write_jsonl(file: TextIO, source: Source, added: AddedColumns, predictions: Iterable[Prediction]) -> None:
    """Write each row as an object: its own keys, then those of its prediction."""
    for prediction in predictions:
        record = source.record(prediction.row)
        names = added.names
        if not record.keys().isdisjoint(names):
            # An object may have a key that the first rows did not have
            names = free_names(names, record, TAKEN)
        record.update(zip(names, added.values(prediction), strict=True))
        file.write(json_text(record) + "\n")


def write_lines(
    file: TextIO, _source: Source, added: AddedColumns, predictions: Iterable[Prediction]
) -> None:
    """Write predictions of valid rows for people: answer and text, then the most probable labels."""
    for prediction in predictions:
        for line in (_answer_line(prediction, added), _labels_line(prediction, added)):
            # A terminal would act on control characters
            file.write(shorten(line, len(line)) + "\n")


def _answer_line(prediction: Prediction, added: AddedColumns) -> str:
    """Return the answer, its probability and decision where it has them, and the text."""
    answers = prediction.answer
    if not isinstance(answers, list):
        answers = [str(answers)]
    words = [", ".join(map(short_label, answers)) or "(no label)"]
    columns = prediction_columns(added.task, prediction.probabilities, added.threshold)
    if "probability" in columns:
        words.append(f"{columns['probability']:.4f}")
    if "decision" in columns:
        words.append(columns["decision"])
    return f"{' '.join(words)}  {' ⟷ '.join(prediction.row.texts)}"


def _labels_line(prediction: Prediction, added: AddedColumns) -> str:
    """Return the most probable labels with their probabilities."""
    words = []
    for label in ranked_labels(added.task, prediction.probabilities)[:MAX_LABELS]:
        name = short_label(added.task.label_names[label])
        words.append(f"{name} {prediction.probabilities[label]:.4f}")
    return "    " + "  ".join(words)
