"""The rows on which an exported model is compared: the dev rows of its run, or a file of texts."""

from pathlib import Path

import numpy as np

from ..checkpoints.run_history import CONFIG
from ..data.read import options_of_run
from ..data.rows import Row, read_rows
from ..errors import InputError, listed
from ..prediction.run_data import dataset_of_run

SEED = 0


def rows_of_run(
    folder: Path, label_names: list[str], count: int, splits: tuple[str, ...] = ("dev", "test", "train")
) -> tuple[list[Row], np.ndarray]:
    """Return up to `count` random rows of a run, and their class ids, of the first of `splits` that it has.

    Raises InputError for a folder that is no run, and for data that is gone or has other labels.
    """
    remedy = "name a file of texts with --rows"
    dataset = dataset_of_run(folder, "a comparison needs", remedy)
    if dataset.label_names != label_names:
        raise InputError(
            f"{folder / CONFIG}: its data has the labels {listed(dataset.label_names)}, the model "
            f"{listed(label_names)}; {remedy}"
        )
    split = next(dataset.splits[name] for name in splits if name in dataset.splits)
    chosen = np.sort(_choose(len(split), count))
    rows = [Row(int(row), split.table.text(row), split.table.pair(row), None) for row in split.rows[chosen]]
    return rows, np.asarray(split.labels[chosen])


def rows_of_file(path: str, count: int, settings: dict) -> list[Row]:
    """Return up to `count` rows of a file of texts, chosen at random; raises InputError for an invalid file.
    `settings` are the `data` settings of the run, with which the file is read."""
    options = options_of_run(Path(path), settings)
    rows = [row for row in read_rows(path, options, need_label=False) if isinstance(row, Row)]
    if not rows:
        raise InputError(f"{path}: there are no valid rows; name another file with --rows")
    return [rows[index] for index in np.sort(_choose(len(rows), count))]


def _choose(num_rows: int, count: int) -> np.ndarray:
    return np.random.default_rng(SEED).permutation(num_rows)[:count]
