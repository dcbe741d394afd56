"""The data of a finished run, and vectors of texts by its model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..checkpoints.run_history import CONFIG
from ..config.command_line import load_data_settings
from ..data.dataset import Dataset, open_dataset
from ..data.rows import Row
from ..errors import InputError
from .open_model import OpenedModel


def dataset_of_run(folder: Path, need: str, remedy: str) -> Dataset:
    """Return the dataset of a run; `need` is what for, and `remedy` what helps without it. Raises InputError
    for a folder that is no run, and for data that is not there any more."""
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder}: {need} the data of a run, found no settings of one; {remedy}")
    try:
        return open_dataset(load_data_settings(path))
    except InputError as error:
        raise InputError(f"the data of {folder} cannot be read: {error}; or {remedy}") from error


def vectors_of_rows(opened: OpenedModel, rows: Sequence[Row]) -> np.ndarray:
    """Return vectors of rows, (num_rows, size) float32, by the model of a run; raises InputError for an
    exported folder."""
    from ..vectors.text_vectors import TextVectors

    predictor, about = opened.predictor, opened.predictor.runtime.description
    if about["runtime"] != "torch":
        raise InputError(f"vectors need the run itself, found the exported folder {opened.folder}")
    vectors = TextVectors(predictor.runtime.model, predictor.encoder, about["device"])
    return vectors.compute([row.texts for row in rows])
