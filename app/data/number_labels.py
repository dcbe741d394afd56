"""One number a row: a score, a price, a degree of similarity."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError
from .cells import label_text, shown
from .column_values import MIN_ROWS
from .label_form import LabelForm
from .readers import ReadOptions

# Ranges with about equally many rows, whose proportions a split keeps, and the least rows of one
MAX_RANGES, ROWS_OF_RANGE = 10, 20
NAME = "score"
# The squares of larger numbers do not add up
LARGEST = 1e100


class NumberLabels(LabelForm):
    """The labels of rows are numbers, (num_rows,) float64; a label text is a number as Python writes it."""

    what = "number"

    def text(self, value: Any, options: ReadOptions) -> str:
        return repr(number_of(value))

    def text_of_fix(self, value: Any, options: ReadOptions) -> str:
        return "" if value is None or not str(value).strip() else self.text(value, options)

    def are_labels(self, values: Sequence) -> bool:
        return len(values) >= MIN_ROWS and all(is_finite(value) for value in values)

    def labels_in(self, text: str) -> list[str]:
        return []

    def names(self, config: DataConfig, train: Any) -> list[str]:
        return [NAME]

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        return np.array([float(text) for text in texts], dtype=np.float64)

    def split(self, labels, hashes, dev, test, seed, names) -> dict[str, np.ndarray]:
        names = [f"range {number}" for number in range(int(self.classes(labels).max()) + 1)]
        return super().split(labels, hashes, dev, test, seed, names)

    def classes(self, labels: np.ndarray) -> np.ndarray:
        """Return the range of each number; ranges have about equally many rows."""
        number = min(MAX_RANGES, max(1, len(labels) // ROWS_OF_RANGE))
        edges = np.unique(np.quantile(labels, np.arange(1, number) / number))
        return np.unique(np.searchsorted(edges, labels), return_inverse=True)[1]

    def ids(self, labels: np.ndarray) -> np.ndarray:
        return np.unique(labels, return_inverse=True)[1]

    def check(self, labels: dict, rows: dict, tables: dict, names: list[str]) -> None:
        """Raise InputError where all numbers of train are the same."""
        train = labels["train"]
        if len(train) and float(np.ptp(train)) == 0:
            first = tables["train"].where(int(rows["train"][0]))
            raise InputError(
                f"{first}: the numbers of train must differ, found {train[0]:g} in all of its {len(train):,} "
                "rows; is data.label_column the right column?"
            )

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        ends = {"least": float(labels.min()), "largest": float(labels.max())}
        return {"classes": {}, "mean": float(labels.mean()), "deviation": float(labels.std())} | ends


def is_finite(value: Any) -> bool:
    """Return whether a cell is a finite number, or text that is one."""
    try:
        number_of(value)
    except ValueError:
        return False
    return True


def number_of(value: Any) -> float:
    """Return the number in a cell; raises ValueError with the problem."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = repr(value) if is_number else label_text(value)
    try:
        # Python reads 1_000 too
        number = float("_" if "_" in text else text)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"the label must be a number, found {shown(value)}; fix the row, or set --data.label_column, or "
            "--data.header true where this line has the names of the columns"
        ) from error
    if not math.isfinite(number):
        raise ValueError(f"the label must be a finite number, found {shown(value)}; fix or remove the row")
    if abs(number) > LARGEST:
        raise ValueError(
            f"the label must be from -{LARGEST:g} to {LARGEST:g}, found {shown(value)}; fix or remove the row"
        )
    return number
