"""Predictions -> rows of CSV, JSON Lines or Excel, or lines for people."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from typing import TextIO

import numpy as np

from ..evaluation.text_table import short_label
from ..outcomes.labelled_outcome import LabelledOutcome
from .excel import write_sheet
from .predictor import Prediction

# Control characters, and those that change the direction of what follows.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Of a prediction for people
MAX_LABELS = 10


class PredictionWriter:
    """Writes predictions of an outcome in one of `FORMATS`.

    A row has the columns line, text, text_pair (with `has_pairs`), the answer, and those of
    `LabelledOutcome.columns`, with a `threshold` also its decision. Texts are written as they were read, even
    those that a spreadsheet would run as formulas: see docs/data.md.
    """

    def __init__(self, outcome: LabelledOutcome, has_pairs: bool, threshold: float | None = None) -> None:
        self.outcome = outcome
        self.has_pairs = has_pairs
        self.threshold = threshold

    def write(self, format: str, file: TextIO, predictions: Iterable[Prediction]) -> None:
        """Write predictions as they come; an Excel file all at the end."""
        getattr(self, f"_write_{format}")(file, predictions)

    def names(self) -> list[str]:
        """Return the names of the columns."""
        texts = ["text", "text_pair"] if self.has_pairs else ["text"]
        some = np.full(len(self.outcome.label_names), 0.5)
        return ["line", *texts, self.outcome.label_column, *self.outcome.columns(some, self.threshold)]

    def _values(self, prediction: Prediction) -> list:
        """Return the values of the columns, the answer as it is."""
        row, answer, probabilities = prediction
        texts = [row.text, row.pair] if self.has_pairs else [row.text]
        return [row.line, *texts, answer, *self.outcome.columns(probabilities, self.threshold).values()]

    def _cells(self, prediction: Prediction) -> list[str | int | float]:
        """Return the values of the columns, a list of labels as JSON."""
        return [
            json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
            for value in self._values(prediction)
        ]

    def _write_csv(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        writer = csv.writer(file)
        writer.writerow(self.names())
        for prediction in predictions:
            cells = self._cells(prediction)
            writer.writerow(f"{value:.6f}" if isinstance(value, float) else value for value in cells)

    def _write_jsonl(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        names = self.names()
        for prediction in predictions:
            record = dict(zip(names, self._values(prediction), strict=True))
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _write_xlsx(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        write_sheet(file, self.names(), map(self._cells, predictions))

    def _write_lines(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        """Write predictions for people: answer and text, then labels from the most probable on."""
        for row, answer, probabilities in predictions:
            columns = self.outcome.columns(probabilities, self.threshold)
            decided = f" {columns['decision']}" if "decision" in columns else ""
            line = f"{self.outcome.line(answer, probabilities)}{decided}  {' '.join(row.text.split())}"
            labels = self._listed_labels(probabilities)
            file.writelines(f"{without_controls(text)}\n" for text in (line, f"    {labels}"))

    def _listed_labels(self, probabilities: np.ndarray) -> str:
        names, listed = self.outcome.label_names, self.outcome.listed_labels(probabilities)
        shown = [f"{short_label(names[label])} {probabilities[label]:.4f}" for label in listed[:MAX_LABELS]]
        more = len(listed) - MAX_LABELS
        return "  ".join([*shown, *([f"and {more:,} more labels"] if more > 0 else [])])


def without_controls(line: str) -> str:
    """Return a line with escapes in place of control characters: a terminal would act on the characters
    themselves."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), line)
