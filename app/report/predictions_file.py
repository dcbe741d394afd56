"""predictions.csv: rows with their true and predicted answers, of a run or of a report on other rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import numpy as np

from ..tasks.task import Task

PREDICTED = "predicted"  # the column of answers; that of the truth is called as the task calls it


class PredictionsFile:
    """Writes rows into an open text file, the names of the columns first: those that say where a row is and
    what it says, the true answer (`label`, `labels` or `score`), the answer of the model (`predicted`), what
    the model adds to it, and other columns of the input."""

    def __init__(
        self,
        file: TextIO,
        task: Task,
        row_names: Iterable[str],
        added_names: Iterable[str],
        other_names: Iterable[str] = (),
    ) -> None:
        self.writer = csv.writer(file)
        self.writer.writerow([*row_names, task.answer_column, PREDICTED, *added_names, *other_names])

    def write(
        self,
        row_values: Sequence[Any],
        truth: str,
        answer: str,
        added_values: Iterable[Any],
        other_values: Iterable[Any] = (),
    ) -> None:
        """Write one row; `truth` and `answer` are cells as the task has them."""
        added_cells = [added_cell(value) for value in added_values]
        self.writer.writerow([*row_values, truth, answer, *added_cells, *other_values])


def added_cell(value: Any) -> str:
    """Return a value beside an answer as text: a number with six digits, a list as JSON."""
    if isinstance(value, (float, np.floating)):
        return f"{value:.6f}"
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)
