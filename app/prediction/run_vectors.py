"""Vectors of texts by the encoder of a run, and those of its own rows, computed once."""

from collections.abc import Sequence

import numpy as np

from ..data.dataset import Split
from ..data.rows import Row
from ..errors import InputError
from .open_model import OpenedModel
from .run_data import dataset_of_run


class RunVectors:
    """Computes vectors with the model of a run, for an option of the name `option`. Raises InputError for a
    model that is no run, for an exported one, and for data that is not there any more."""

    def __init__(self, opened: OpenedModel, option: str) -> None:
        from ..vectors.text_vectors import TextVectors

        predictor, about = opened.predictor, opened.predictor.runtime.description
        if about["runtime"] != "torch":
            raise InputError(f"{option} needs the run itself, found the exported folder {opened.folder}")
        self.dataset = dataset_of_run(opened.folder, f"{option} needs", f"leave out {option}")
        self.vectors = TextVectors(predictor.runtime.model, predictor.encoder, about["device"], "fp32")

    def of(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the vectors of rows, (num_rows, size) float32."""
        return self.vectors.compute([row.texts for row in rows])

    def of_split(self, split: Split) -> np.ndarray:
        """Return the vectors of the rows of a split, (num_rows, size) float32, from the cache of its data."""
        texts = split.table.texts(np.asarray(split.rows))
        return self.vectors.stored(texts, self.dataset.folder.parent)
