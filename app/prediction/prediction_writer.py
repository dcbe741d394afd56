"""Predictions -> rows of CSV, JSON Lines or Excel, or lines for people."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from ..tasks.task import Task
from ..text_table import short_label
from .excel_output import write_sheet
from .input_columns import KeptColumns, NumberedTexts, as_json, as_text, free_names, writable
from .nearest_rows import NearestRows
from .predictor import Prediction

# Control characters, and those that change the direction of what follows.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# The column of why a row has no label; before the name of a column that the input has too
REASON, TAKEN = "reason", "predicted_"
# Of a prediction for people
MAX_LABELS = 10


@dataclass
class PredictionWriter:
    """Writes predictions of a task in one of `FORMATS`.

    A row has the `columns` of its input, the answer, those of `Task.columns`, with a `threshold`
    also its decision, and with `evidence`, as the predictor has it, that. With `place`, what a row's number
    counts, the last one says why an invalid row has no answer. A column of the input is never replaced: where
    it has the name of one of these, that is called predicted_NAME. Texts are written as they were read, even
    those that a spreadsheet would run as formulas: see docs/data.md.
    """

    task: Task
    columns: KeptColumns | NumberedTexts
    threshold: float | None = None
    place: str | None = None
    evidence: NearestRows | None = None

    def __post_init__(self) -> None:
        self.sample = self.task.columns(np.full(len(self.task.label_names), 0.5), self.threshold)
        if self.evidence:
            self.sample |= self.evidence.sample
        names = [self.task.label_column, *self.sample, *([REASON] if self.place else [])]
        self.added = free_names(names, TAKEN, self.columns.names)

    def write(self, format: str, file: TextIO, predictions: Iterable[Prediction]) -> None:
        """Write predictions as they come; an Excel file all at the end."""
        getattr(self, f"_write_{format}")(file, predictions)

    def write_parquet(self, file: TextIO, source: Path, predictions: Iterable[Prediction]) -> None:
        """Write predictions of a Parquet file, with its columns and their types."""
        from .parquet_output import write_parquet

        rows = ((one.row.line, self.values(one)) for one in predictions)
        write_parquet(file, source, list(zip(self.added, self.arrow_types(), strict=True)), rows)

    def arrow_types(self) -> list:
        """Return the Arrow types of the columns that predictions add."""
        from .parquet_output import column_types

        label = self.task.arrow_array([]).type
        return [label, *column_types([*self.sample.values(), *([REASON] if self.place else [])])]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [*map(writable, self.columns.names), *self.added]

    def values(self, prediction: Prediction) -> list:
        """Return the values of the added columns, the answer as it is; of an invalid row only the reason."""
        row, answer, probabilities, beside = prediction
        if probabilities is None:
            return [None] * (len(self.added) - 1) + [f"{self.place} {row.line}: {row.problem}"]
        columns = self.task.columns(probabilities, self.threshold)
        values = [answer, *columns.values(), *(beside or {}).values()]
        return [*values, None] if self.place else values

    def _cells(self, prediction: Prediction) -> list:
        """Return the values of all columns, a list of labels as JSON."""
        added = [as_text(value) if isinstance(value, list) else value for value in self.values(prediction)]
        return [*self.columns.values(prediction.row), *added]

    def _write_csv(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        writer = csv.writer(file)
        writer.writerow(self.names)
        num_kept = len(self.columns.names)
        for prediction in predictions:
            cells = self._cells(prediction)
            answer, *others = cells[num_kept:]
            added = [f"{cell:.6f}" if isinstance(cell, float) else cell for cell in others]
            writer.writerow([*map(as_text, cells[:num_kept]), answer, *added])

    def _write_jsonl(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        for prediction in predictions:
            record = self.columns.record(prediction.row)
            names = free_names(self.added, TAKEN, record)
            record |= zip(names, self.values(prediction), strict=True)
            numbers = {name: None if value != value else value for name, value in record.items()}  # noqa: PLR0124
            file.write(json.dumps(numbers, ensure_ascii=False, default=as_json) + "\n")

    def _write_xlsx(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        write_sheet(file, self.names, map(self._cells, predictions))

    def _write_lines(self, file: TextIO, predictions: Iterable[Prediction]) -> None:
        """Write predictions for people: answer and text, then labels from the most probable on."""
        for row, answer, probabilities, beside in predictions:
            if probabilities is None:
                file.write(f"{without_controls(f'no label: {self.place} {row.line}: {row.problem}')}\n")
                continue
            columns = self.task.columns(probabilities, self.threshold)
            decided = f" {columns['decision']}" if "decision" in columns else ""
            line = f"{self.task.line(answer, probabilities)}{decided}  {' '.join(row.text.split())}"
            listed = self._listed_labels(probabilities)
            lines = [line, *([f"    {listed}"] if listed else []), *_lines_beside(beside or {})]
            file.writelines(f"{without_controls(text)}\n" for text in lines)

    def _listed_labels(self, probabilities: np.ndarray) -> str:
        names, ranked = self.task.label_names, self.task.ranked_labels(probabilities)
        # One answer is in the line above
        listed = ranked if self.task.form.has_several else ranked[1:]
        shown = [f"{short_label(names[label])} {probabilities[label]:.4f}" for label in listed[:MAX_LABELS]]
        more = len(listed) - MAX_LABELS
        return "  ".join([*shown, *([f"and {more:,} more labels"] if more > 0 else [])])


def _lines_beside(beside: Mapping) -> Iterator[str]:
    """Yield lines for people of what is beside a prediction: a list of rows has a line for each."""
    for name, value in beside.items():
        if not isinstance(value, list):
            yield f"    {name} {value}"
            continue
        for row in value:
            text = " ".join(row["text"].split())
            yield f"    {name} {row['similarity']:.4f} {as_text(row['label'])}  {text}"


def without_controls(line: str) -> str:
    """Return a line with escapes in place of control characters, on which a terminal would act."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), line)
