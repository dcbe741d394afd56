"""The data of a finished run: its rows, their vectors, and the training rows that are most like a text, which
are the evidence for its label."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints.run_history import CONFIG
from ..config.command_line import load_data_settings
from ..data.dataset import Dataset, Split, open_dataset
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


class RunVectors:
    """Computes vectors with the model of a run, for an option of the name `option`. Raises InputError for a
    model that is no run, for an exported one, and for data that is not there any more."""

    def __init__(self, opened: OpenedModel, option: str) -> None:
        from ..vectors.text_vectors import TextVectors

        predictor, about = opened.predictor, opened.predictor.runtime.description
        if about["runtime"] != "torch":
            raise InputError(f"{option} needs the run itself, found the exported folder {opened.folder}")
        self.dataset = dataset_of_run(opened.folder, f"{option} needs", f"leave out {option}")
        self.vectors = TextVectors(predictor.runtime.model, predictor.encoder, about["device"])

    def of(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the vectors of rows, (num_rows, size) float32."""
        return self.vectors.compute([row.texts for row in rows])

    def of_split(self, split: Split) -> np.ndarray:
        """Return the vectors of the rows of a split, (num_rows, size) float32, from the cache of its data."""
        texts = split.table.texts(np.asarray(split.rows))
        return self.vectors.stored(texts, self.dataset.folder.parent)


class NearestRows:
    """Finds the training rows of a run that are nearest to rows, by the vectors of their texts: `count` of
    them. `sample` has the columns, with values of their types.
    Raises InputError as `RunVectors` does."""

    def __init__(self, opened: OpenedModel, count: int = 1) -> None:
        self.vectors = RunVectors(opened, "--evidence")
        self.task, self.count = opened.predictor.task, count
        self.split = self.vectors.dataset.splits["train"]
        self.known = self.vectors.of_split(self.split)
        self.sample: dict[str, Any] = {"support": 0, "evidence": [self._described(1.0, 0)]}

    def find(self, rows: Sequence[Row], answers: Sequence) -> list[dict[str, Any]]:
        """Return for each row `evidence`, its nearest training rows, and `support`, how many agree."""
        from ..vectors.text_vectors import nearest

        found = []
        places = nearest(self.known, self.vectors.of(rows), self.count)
        for answer, *nearest_rows in zip(answers, *places, strict=True):
            evidence = list(map(self._described, *nearest_rows))
            support = sum(one["label"] == answer for one in evidence)
            found.append({"support": support, "evidence": evidence})
        return found

    def _described(self, similarity: float, at: int) -> dict[str, Any]:
        """Return label, similarity, text and place of the training row at a position of train."""
        table, row, answer = self.split.table, self.split.rows[at], self.task.answer(self.split.labels[at])
        pair = {"text_pair": table.pair(row)} if table.has_pairs else {}
        described = {"label": answer, "similarity": round(float(similarity), 4), "text": table.text(row)}
        return described | pair | {"where": table.where(row)}
