"""A trained model in memory: `load` opens a run, a checkpoint or an export, and `Model` classifies texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.read import ReadOptions
from ..data.rows import Row, join_texts, text_rows
from ..errors import InputError, excerpt
from ..prediction.model_folder import check_pairs, model_files
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.output import AddedColumns
from ..prediction.predictor import Prediction

if TYPE_CHECKING:
    import pyarrow as pa

RULE = "texts must be a list of strings, or of pairs of strings"


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
        """Return the label of each text, (num_texts,): lists of labels for a model with several a text.

        `texts` are strings or, for a model that was trained on pairs, pairs of strings. Raises InputError for
        texts that `rows_of` refuses, and TrainingError for logits that are not finite.
        """
        found = [one.answer for one in self._predictions(texts)]
        answers = np.empty(len(found), object)
        answers[:] = found
        column = self._opened.predictor.task.label_column
        return answers.astype({"label": str, "labels": object, "score": float}[column])

    def predict_proba(self, texts: Iterable) -> np.ndarray:
        """Return the probability of each label, (num_texts, num_labels) float64; raises as `predict` does."""
        if not self._opened.predictor.task.has_confidence:
            raise InputError(f"{self.folder}: the model gives numbers, not probabilities; call predict")
        found = [one.probabilities for one in self._predictions(texts)]
        return np.array(found).reshape(-1, len(self.label_names))

    def predict_table(self, texts: Iterable) -> pa.Table:
        """Return what the verb predict writes of each text, as an Arrow table of (num_texts,) rows: label,
        probability, p_<label> for each label, and reason, why an invalid text has no label.

        Raises TrainingError for logits that are not finite.
        """
        import pyarrow as pa

        opened = self._opened
        rows = list(text_rows(_joined(texts, opened.text_columns), self._reading()))
        self._check_pairs([row for row in rows if isinstance(row, Row)])
        added = AddedColumns(opened.predictor.task, place="text")
        return pa.table(added.arrays(opened.predictor.predict(rows)), added.names)

    def _predictions(self, texts: Iterable) -> Iterator[Prediction]:
        rows = rows_of(texts, self._reading(), self._opened.text_columns)
        self._check_pairs(rows)
        return self._opened.predictor.predict(rows)

    def _reading(self) -> ReadOptions:
        return ReadOptions("text", remove_spaces=self._opened.remove_spaces)

    def _check_pairs(self, rows: list[Row]) -> None:
        for row in rows[:1]:
            check_pairs(self.folder, self._opened.recorded, row.pair is not None, "give texts of that kind")

    def save(self, folder: str | Path) -> Path:
        """Write the files of the model into a new folder, which `load`, predict.py and transformers open;
        return its path. Raises InputError for a folder that has something in it."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"a model is saved in a new folder, found something in {folder}; choose another name"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.__getstate__()["files"].items():
            (folder / name).write_bytes(content)
        return folder

    def __getstate__(self) -> dict[str, Any]:
        files = {path.name: path.read_bytes() for path in model_files(self.folder)}
        return {"files": files, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        temporary = TemporaryDirectory(prefix="chinese-text-classifier-")
        for name, content in state["files"].items():
            (Path(temporary.name) / name).write_bytes(content)
        self.__init__(Path(temporary.name), state["options"], temporary)


def rows_of(texts: Iterable, options: ReadOptions, columns: Sequence[str] | None = None) -> list[Row]:
    """Return the rows of texts (a list, array, Series or column), or of pairs, also as two columns; of a
    model of several `columns`, also as rows of a data frame, dictionaries with the names of the columns, or
    lists in their order. Raises InputError, naming the index, for an empty text or no string, and where only
    some are pairs."""
    rows = []
    for index, row in enumerate(text_rows(_checked(_joined(texts, columns)), options)):
        if not isinstance(row, Row):
            raise InputError(f"texts[{index}]: {row.problem}")
        if rows and (row.pair is None) != (rows[0].pair is None):
            kind = "one string" if row.pair is None else "a pair"
            raise InputError(f"{RULE}, found both: texts[{index}] is {kind}, texts[0] is not")
        rows.append(row)
    return rows


def check_ordered(values: Any, what: str) -> None:
    """Raise InputError for what is no list, and for a set, whose order is another one in each process."""
    if isinstance(values, dict) or not (hasattr(values, "__iter__") or hasattr(values, "__getitem__")):
        raise InputError(f"{what} must be a list, found {excerpt(values)}")
    if isinstance(values, (set, frozenset)):
        raise InputError(f"{what} must have an order, found a {type(values).__name__}; give a list")


def _joined(texts: Iterable, columns: Sequence[str] | None) -> Iterable:
    """Return texts, those of several columns as one; anything else stays as it is."""
    check_ordered(texts, "texts")
    if columns is None:
        return texts
    if hasattr(texts, "columns"):
        texts = texts[list(columns)].to_numpy(dtype=object).tolist()
    joined = []
    for value in texts:
        if isinstance(value, dict) and value.keys() >= set(columns):
            value = [value[name] for name in columns]
        is_row = isinstance(value, (list, tuple)) and len(value) == len(columns)
        joined.append(join_texts(value) if is_row else value)
    return joined


def _checked(texts: Any) -> Iterator[str | tuple[str, str]]:
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{RULE}, found one string: {excerpt(str(texts))}; write [text]")
    # Pandas
    texts = texts.to_numpy(dtype=object) if hasattr(texts, "to_numpy") else texts
    if isinstance(texts, np.ndarray):
        if texts.ndim == 0 or texts.ndim > 2 or (texts.ndim == 2 and texts.shape[1] > 2):
            raise InputError(
                f"{RULE}, found an array of shape {texts.shape}; choose the column or columns of the text"
            )
        texts = (texts[:, 0] if texts.ndim == 2 and texts.shape[1] == 1 else texts).tolist()
    for index, value in enumerate(texts):
        parts = list(value) if isinstance(value, (list, tuple)) and len(value) == 2 else [value]
        if not all(isinstance(part, str) for part in parts):
            raise InputError(f"{RULE}, found {excerpt(value)} at texts[{index}]; fill it in, or leave it out")
        yield tuple(parts) if len(parts) == 2 else value
