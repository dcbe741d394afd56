"""A trained model from Python: `load` opens a run, a checkpoint or an export as a `Model`, which classifies
texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoints.run_files import CHECKPOINTS
from ..data.rows import Row
from ..errors import InputError
from ..prediction.added_columns import AddedColumns
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.output_files import written
from ..prediction.predictor import Prediction
from ..prediction.trained_model import choose_run
from ..program import MODULE
from .errors import errors_for_python
from .files import OwnFolder, file_states, read_files, write_new_folder
from .labels import label_array, list_array
from .texts import rows_of

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_LABELS = 10  # of a model, when it is printed


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


def last_run() -> Path:
    """Return the run in checkpoints/ that finished last. Raises InputError where there is none."""
    try:
        return choose_run()
    except InputError as error:
        raise InputError(
            f"there is no finished run in {CHECKPOINTS}/ of the working folder; give load the folder of a "
            "model, or train one"
        ) from error


class Model:
    """A trained classifier; `label_names` has its labels in the order of the columns of `predict_proba`. It
    can be pickled: the pickle holds the files of the model, and is as large as they are."""

    # Pickles made in a clone open where the package is installed, and the reverse.
    __module__ = MODULE

    def __init__(
        self, folder: Path | None, options: ComputeOptions, temporary: OwnFolder | None = None
    ) -> None:
        """`temporary` is a folder that exists as long as this model does."""
        self.options = options
        self._temporary = temporary
        self.folder = folder or last_run()
        # The program may change to another working folder
        self._absolute_folder = self.folder.absolute()
        # Files that change later are not those of this model, whose weights are in memory
        self._states = file_states(self._absolute_folder)
        with errors_for_python():
            self._opened = open_model(self.folder, options)
        self.label_names = list(self._opened.predictor.task.label_names)

    def __repr__(self) -> str:
        """Show which model it is: its folder, its task, and its labels, of many only the first."""
        task = self._opened.predictor.task
        parts = [repr(str(self.folder)), f"task={task.name!r}"]
        if task.has_labels and not task.predicts_number:
            names = ", ".join(map(repr, self.label_names[:SHOWN_LABELS]))
            num_more = len(self.label_names) - SHOWN_LABELS
            if num_more > 0:
                names += f", … {num_more:,} more"
            parts.append(f"labels=[{names}]")
        return f"Model({', '.join(parts)})"

    def predict(self, texts: Iterable) -> np.ndarray:
        """Return the label of each text, (num_texts,) strings: lists of labels for a model with several a
        text, float64 for one of numbers.

        `texts` are strings or, for a model that was trained on pairs, pairs of strings. Raises InputError for
        texts that `rows_of` refuses, and TrainingError for logits that are not finite.
        """
        answers = [prediction.answer for prediction in self._predictions(texts)]
        answer_column = self._opened.predictor.task.answer_column
        if answer_column == "score":
            return np.array(answers, dtype=float)
        if answer_column == "label":
            return label_array(answers)
        return list_array(answers)

    def predict_proba(self, texts: Iterable) -> np.ndarray:
        """Return the probability of each label, (num_texts, num_labels) float64; raises as `predict` does."""
        if self._opened.predictor.task.predicts_number:
            raise InputError(f"{self.folder}: the model gives numbers, not probabilities; call predict")
        probabilities = [prediction.probabilities for prediction in self._predictions(texts)]
        return np.array(probabilities).reshape(-1, len(self.label_names))

    def predict_table(self, texts: Iterable) -> pa.Table:
        """Return what the verb predict writes of each text, as an Arrow table of (num_texts,) rows: label,
        probability, p_<label> for each label, and reason, why an invalid text has no label.

        Raises TrainingError for logits that are not finite.
        """
        import pyarrow as pa

        added = AddedColumns(self._opened.predictor.task, place="text")
        return pa.table(added.arrays(self._predictions(texts, keep_bad=True)), added.names)

    def _predictions(self, texts: Iterable, keep_bad: bool = False) -> Iterator[Prediction]:
        trained = self._opened.trained
        rows = rows_of(
            texts,
            columns=trained.columns,
            remove_spaces=trained.reading.remove_spaces,
            keep_bad=keep_bad,
        )
        # All rows are pairs, or none is: the first valid one tells
        first_row = next((row for row in rows if isinstance(row, Row)), None)
        if first_row is not None:
            trained.check_pairs(first_row.pair is not None, "give texts of that kind")
        with errors_for_python():
            yield from self._opened.predictor.predict(rows)

    def save(self, folder: str | Path) -> Path:
        """Write the files of the model into a new folder, which `load`, predict.py and transformers open;
        return its path. Raises InputError for a folder that has something in it, and where the files of the
        model are gone or have changed since it was opened; TrainingError for a full disk. Then nothing is
        left in the folder."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"a model is saved in a new folder, found something in {folder}; choose another name"
            )
        files = read_files(self._absolute_folder, self._states)
        with written(str(folder)):
            write_new_folder(folder, files)
        return folder

    def __getstate__(self) -> dict[str, Any]:
        files = read_files(self._absolute_folder, self._states)
        return {"files": files, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        temporary = OwnFolder()
        for name, content in state["files"].items():
            (temporary.path / name).write_bytes(content)
        self.__init__(temporary.path, state["options"], temporary)
