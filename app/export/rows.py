"""Rows on which an exported model is compared with the original, or quantised."""

from pathlib import Path

import numpy as np

from ..data.row_reader import open_rows
from ..data.rows import Row
from ..errors import InputError, listed
from ..prediction.open_model import OpenedModel
from ..prediction.sources import options_of_run
from ..prediction.trained_model import dataset_of_run


def rows_of_file(opened: OpenedModel, file: str, count: int) -> list[Row]:
    """Return up to `count` valid rows of a file, chosen at random, in its order. Raises InputError for an
    invalid file, and for one without valid rows."""
    options = options_of_run(Path(file), opened.trained)
    reader = open_rows(file, options, need_label=False)
    rows = [row for row in reader.rows() if isinstance(row, Row)]
    if not rows:
        raise InputError(f"{file}: there are no valid rows; name another file with --rows")
    return [rows[index] for index in random_indices(len(rows), count)]


def rows_of_run(
    opened: OpenedModel, count: int, splits: tuple[str, ...]
) -> tuple[list[Row], np.ndarray, str]:
    """Return up to `count` rows, chosen at random, with their labels, of the first of `splits` that the run
    has; and the name of the split. Raises InputError for a folder that is no run, and for data that is gone
    or has other labels."""
    remedy = "name a file of texts with --rows"
    dataset = dataset_of_run(opened.folder, "a comparison needs", remedy)
    label_names = opened.predictor.task.label_names
    if dataset.label_names != label_names:
        raise InputError(
            f"{opened.folder}: its data has the labels {listed(dataset.label_names)}, the model "
            f"{listed(label_names)}; {remedy}"
        )
    name = next(name for name in splits if name in dataset.splits)
    split = dataset.splits[name]
    indices = random_indices(len(split), count)
    rows = [split.table.row(row) for row in split.rows[indices]]
    return rows, np.asarray(split.labels[indices]), split.name


def random_indices(num_rows: int, count: int) -> np.ndarray:
    """Return up to `count` of the indices of rows, in order, the same in each call."""
    order = np.random.default_rng(0).permutation(num_rows)
    return np.sort(order[:count])
