"""A trained model in memory: `load` opens a run, a checkpoint or an export, and `Model` classifies texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.read import ReadOptions
from ..data.rows import Row, text_rows
from ..errors import InputError
from ..prediction.input_columns import NumberedTexts
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.prediction_writer import PredictionWriter
from ..prediction.recorded_settings import check_pairs, model_files
from .checked_texts import check_ordered, joined_columns, rows_of

if TYPE_CHECKING:
    import pyarrow as pa


def load(
    folder: str | Path | None = None,
    *,
    device: str = "auto",
    precision: str = "fp32",
    batch_tokens: int | None = None,
    calibrate: bool = True,
) -> Model:
    """Return the model in a folder: a run, a checkpoint or an export; None: the run that finished last.
    Options are those of `python -m app predict`. Raises InputError, a ValueError, for a wrong folder."""
    options = ComputeOptions(device, precision, batch_tokens, calibrate)
    return Model(None if folder is None else Path(folder), options)


class Model:
    """A trained classifier; `label_names` has its labels in the order of the columns of `predict_proba`. It
    can be pickled: the pickle holds the files of the model, and is as large as they are."""

    # Pickles made in a clone open where the package is installed, and the reverse.
    __module__ = "chinese_text_classifier"

    def __init__(
        self, folder: Path | None, options: ComputeOptions, temporary: TemporaryDirectory | None = None
    ) -> None:
        """`temporary` is a folder that exists as long as this model does."""
        self.options = options
        self._temporary = temporary
        self._opened = open_model(folder, options)
        self.folder = self._opened.folder
        self.label_names = list(self._opened.predictor.label_names)

    def __repr__(self) -> str:
        gives = f"{len(self.label_names)} labels" if len(self.label_names) > 1 else self.label_names[0]
        return f"Model({str(self.folder)!r}, {gives})"

    def predict(self, texts: Iterable) -> np.ndarray:
        """Return the label of each text, (num_texts,) strings; of a model with several labels a text,
        (num_texts,) lists of strings; of a model of numbers (num_texts,) float64.

        `texts` are strings or, for a model that was trained on pairs, pairs of strings. Raises InputError for
        texts that `rows_of` in texts.py refuses, and TrainingError for logits that are not finite.
        """
        task = self._opened.predictor.task
        return task.answers(task.decide(self._logits(texts)))

    def predict_proba(self, texts: Iterable) -> np.ndarray:
        """Return the probability of each label, (num_texts, num_labels) float64; raises as `predict` does."""
        task = self._opened.predictor.task
        if not task.has_confidence:
            raise InputError(f"{self.folder}: the model gives numbers, not probabilities; call predict")
        return task.probabilities(self._logits(texts))

    def predict_table(self, texts: Iterable) -> pa.Table:
        """Return what the verb predict writes of each text, as an Arrow table of (num_texts,) rows: label,
        probability, p_<label> for each label, and reason, why an invalid text has no label.

        Raises TrainingError for logits that are not finite.
        """
        import pyarrow as pa

        check_ordered(texts, "texts")
        opened = self._opened
        texts = joined_columns(texts, opened.text_columns) if opened.text_columns else texts
        rows = list(text_rows(texts, ReadOptions("text", remove_spaces=opened.remove_spaces)))
        for row in [row for row in rows if isinstance(row, Row)][:1]:
            check_pairs(self.folder, opened.recorded, row.pair is not None, "give texts of that kind")
        writer = PredictionWriter(opened.predictor.task, NumberedTexts(False), place="text")
        values = [*zip(*map(writer.values, opened.predictor.predict(rows)), strict=True)]
        arrays = map(pa.array, values or [[]] * len(writer.added), writer.arrow_types())
        return pa.Table.from_arrays(list(arrays), writer.added)

    def _logits(self, texts: Iterable) -> np.ndarray:
        opened = self._opened
        rows = rows_of(texts, opened.remove_spaces, opened.text_columns)
        if not rows:
            return np.empty((0, len(self.label_names)), dtype=np.float32)
        check_pairs(self.folder, opened.recorded, rows[0].pair is not None, "give texts of that kind")
        return np.concatenate(list(opened.predictor.logits_of_rows(rows)))

    def save(self, folder: str | Path) -> Path:
        """Write the files of the model into a new folder, which `load`, predict.py and transformers open;
        return its path. Raises InputError for a folder that has something in it."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"a model is saved in a new folder, found something in {folder}; choose another name"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self._files().items():
            (folder / name).write_bytes(content)
        return folder

    def _files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in model_files(self.folder)}

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self._files(), "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        temporary = TemporaryDirectory(prefix="chinese-text-classifier-")
        for name, content in state["files"].items():
            (Path(temporary.name) / name).write_bytes(content)
        self.__init__(Path(temporary.name), state["options"], temporary)
