"""Classifiers from Python: `load` opens a run, a checkpoint or an export as a `Model`, which classifies
texts; `TextClassifier` is the trainer as an estimator of scikit-learn."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..config.command_line import config_of
from ..config.shipped import MODULE
from ..data.label_cells import label_text
from ..data.labels import label_ids
from ..data.rows import Row
from ..errors import InputError, TrainingError, excerpt, shorten
from ..prediction.added_columns import AddedColumns
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.output_files import written
from ..prediction.predictor import Prediction
from ..prediction.trained_model import choose_run
from ..runtime.processes import MODEL_LOCK
from .files import OwnFolder, file_states, read_files, write_new_folder
from .texts import TextColumns, check_ordered, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

# `fit` sets these settings of data from what it is given.
SET_BY_FIT = ("train", "dev", "test", "test_size", "format", "task", "labels", "text_column", "label_column")
SET_BY_FIT += ("text_pair_column", "header", "encoding", "quoting", "on_bad_row", "cache_dir")
# Parameters that are settings of train by the same name
OF_TRAIN = ("epochs", "max_steps", "batch_size", "learning_rate", "early_stopping", "class_weights")
OF_TRAIN += ("precision", "device")


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
        self, folder: Path | None, options: ComputeOptions, temporary: OwnFolder | None = None
    ) -> None:
        """`temporary` is a folder that exists as long as this model does."""
        self.options = options
        self._temporary = temporary
        self.folder = folder or choose_run()
        # The program may change to another working folder
        self._place = self.folder.absolute()
        # Files that change later are not those of this model, whose weights are in memory
        self._states = file_states(self._place)
        self._opened = open_model(self.folder, options)
        self.label_names = list(self._opened.predictor.task.label_names)

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
        # np.array would make a matrix of lists of the same length
        return np.fromiter(answers, object, len(answers))

    def predict_proba(self, texts: Iterable) -> np.ndarray:
        """Return the probability of each label, (num_texts, num_labels) float64; raises as `predict` does."""
        if self._opened.predictor.task.predicts_number:
            raise InputError(f"{self.folder}: the model gives numbers, not probabilities; call predict")
        found = [one.probabilities for one in self._predictions(texts)]
        return np.array(found).reshape(-1, len(self.label_names))

    def predict_table(self, texts: Iterable) -> pa.Table:
        """Return what the verb predict writes of each text, as an Arrow table of (num_texts,) rows: label,
        probability, p_<label> for each label, and reason, why an invalid text has no label.

        Raises TrainingError for logits that are not finite.
        """
        import pyarrow as pa

        added = AddedColumns(self._opened.predictor.task, place="text")
        return pa.table(added.arrays(self._predictions(texts, keep_bad=True)), added.names)

    def _predictions(self, texts: Iterable, keep_bad: bool = False) -> Iterator[Prediction]:
        opened = self._opened
        trained = opened.trained
        rows = rows_of(
            texts,
            columns=TextColumns.of(trained),
            remove_spaces=trained.reading.remove_spaces,
            keep_bad=keep_bad,
        )
        for row in rows:
            if isinstance(row, Row):
                trained.check_pairs(row.pair is not None, "give texts of that kind")
                break
        return opened.predictor.predict(rows)

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
        files = read_files(self._place, self._states)
        with written(str(folder)):
            write_new_folder(folder, files)
        return folder

    def __getstate__(self) -> dict[str, Any]:
        return {"files": read_files(self._place, self._states), "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        temporary = OwnFolder()
        for name, content in state["files"].items():
            (temporary.path / name).write_bytes(content)
        self.__init__(temporary.path, state["options"], temporary)


def labels_of(values: Iterable) -> list[str] | list[int] | list[bool]:
    """Return the labels of rows as values of Python. Raises InputError for what is no list, and for labels
    that are not all strings, all integers or all truth values: 1 and true would be the same label."""
    check_ordered(values, "labels")
    labels = []
    # The first label of each type
    examples: dict[type, Any] = {}
    for value in values.tolist() if hasattr(values, "tolist") else values:
        # Strings and numbers of NumPy become those of Python
        if isinstance(value, str):
            label = str(value)
        elif isinstance(value, (bool, np.bool_)):
            label = bool(value)
        elif isinstance(value, (int, np.integer)):
            label = int(value)
        else:
            raise InputError(f"labels must be all strings or all integers, found {excerpt(value)}")
        labels.append(label)
        examples.setdefault(type(label), label)
    if len(examples) > 1:
        found = " and ".join(map(repr, examples.values()))
        raise InputError(f"labels must be all strings or all integers, found both: {found}")
    return labels


def check_names(names: list[str]) -> None:
    """Raise InputError for labels, all different, that the training could not tell apart, or could not read
    again, and for fewer than two."""
    ids = label_ids(tuple(names), accept_ids=False)
    for at, name in enumerate(names):
        if name != name.strip() or not name:
            raise InputError(
                f"labels must be names without white space around them, not empty, found '{shorten(name)}'"
            )
        try:
            text = label_text(name)
        except ValueError as error:
            raise InputError(f"the label {excerpt(name)} cannot be used: {error}") from error
        if not text or ids.get(text) != at:
            raise InputError(
                f"the label {excerpt(name)} is read as {excerpt(text)}, as in a file (without __label__ and "
                ".0), so it would be another label; rename it"
            )
    if len(names) < 2:
        raise InputError(f"at least two different labels are needed, found {names}")


def label_array(labels: Sequence[str] | Sequence[int] | Sequence[bool]) -> np.ndarray:
    """Return labels of one type as an array, (num_labels,), that gives each of them back as it is: of objects
    where NumPy has no type for them, as for strings that end with zero characters and very large integers."""
    if not labels:
        return np.empty(0, dtype=str)
    array = np.array(labels)
    back = array.tolist()
    if back != list(labels) or type(back[0]) is not type(labels[0]):
        array = np.array(labels, dtype=object)
    return array


class TextClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of texts with one label each, trained as run_single.py trains it, in this process.

    It works in `Pipeline`, `cross_val_score` and `GridSearchCV`. A parameter that is None has the trainer's
    default (`python run_single.py --help all`). `model` is `model.name`, None for e5-small-zh;
    `random_state` is `train.seed`; the others are settings of `data` and `train`. `settings` has any other
    ones by their dotted names, as in {"train.weight_decay": 0.1}.

    All rows given to `fit` are trained on, and the model of the last step is kept. With `dev_size`, a
    fraction or a number of rows, so many rows choose the best evaluation instead, and make `early_stopping`
    possible.

    `output_dir` keeps the run there, with its report; None: only the model is kept, in a temporary folder, as
    long as this object lives. `cache_dir` has pretrained models. `verbose` shows the log.

    After `fit`: `classes_` (num_classes,) are the labels, sorted; `model_` is the trained `Model`, whose
    `save` writes it.
    """

    # Pickles made in a clone open where the package is installed, and the reverse.
    __module__ = "chinese_text_classifier"

    def __init__(
        self,
        *,
        model: str | None = None,
        epochs: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_length: int | None = None,
        dev_size: float = 0,
        early_stopping: int | None = None,
        class_weights: str | list[float] | None = None,
        precision: str | None = None,
        device: str = "auto",
        random_state: int | None = None,
        settings: dict[str, Any] | None = None,
        output_dir: str | Path | None = None,
        cache_dir: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        # scikit-learn reads each parameter from the attribute of its name
        vars(self).update({name: value for name, value in locals().items() if name != "self"})

    def fit(self, X: Iterable, y: Iterable) -> TextClassifier:
        """Train on texts `X` (num_rows,), or pairs of texts (num_rows, 2), and labels `y` (num_rows,).

        Labels are strings, integers or truth values, of one type. Each stays itself: `predict` gives it back.
        Raises InputError (a ValueError) for bad texts, labels and settings, also for labels that a file could
        not tell apart, and TrainingError for a training that cannot continue. Without the data file of
        e5-small-zh, the default model, the InputError has the command that fetches it.
        """
        settings = self._settings()
        rows = rows_of(X)
        labels = labels_of(y)
        if len(labels) != len(rows):
            raise InputError(
                f"y must have one label for each text, found shape ({len(labels)},) for {len(rows):,} texts"
            )
        # NumPy would cut zero characters off strings, and make floats of large integers
        classes = sorted(set(labels))
        names = [str(label) for label in classes]
        check_names(names)
        id_of_label = {label: at for at, label in enumerate(classes)}
        ids = [id_of_label[label] for label in labels]
        temporary = OwnFolder()
        with MODEL_LOCK, ExitStack() as stack:
            stack.callback(temporary.remove)
            run = self._train(temporary.path, settings, rows, names, ids)
            owned = temporary if self.output_dir is None else None
            model = Model(run, ComputeOptions(self.device), owned)
            if owned is not None:
                # From now on the folder lives as long as the model
                stack.pop_all()
        self.classes_ = label_array(classes)
        self.model_ = model
        self._columns = [model.label_names.index(name) for name in names]
        return self

    def _train(
        self, folder: Path, settings: dict[str, Any], rows: list[Row], names: list[str], ids: list[int]
    ) -> Path:
        """Train with settings by their dotted names and return the run's folder; without `output_dir` it is
        in `folder`, and has no report. Raises KeyboardInterrupt after Ctrl-C."""
        import torch

        from ..model.checkpoint import checkpoint_place
        from ..model.head_choice import with_head
        from ..modes.mode import Single
        from ..modes.signals import Stopped
        from ..training.open_run import open_run

        has_pairs, path = rows[0].pair is not None, folder / "train.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for row, label in zip(rows, ids, strict=True):
                record = {"text": row.text, "pair": row.pair, "label": names[label]}
                file.write(json.dumps(record) + "\n")
        settings = settings | {"data.train": str(path), "data.format": "jsonl", "data.test_size": 0}
        settings |= {"data.text_column": "text", "data.label_column": "label", "data.labels": names}
        settings |= {"data.text_pair_column": "pair"} if has_pairs else {}
        with_report = "output.dir" in settings
        if not with_report:
            settings |= {"output.dir": str(folder / "run"), "output.trackers": []}
        given = {key: one.item() if isinstance(one, np.generic) else one for key, one in settings.items()}
        config = config_of(given | {"output.name": "fit"})
        if config.train.best_metric == "rare_f1" and not with_report:
            raise InputError("train.best_metric rare_f1: its threshold is kept with a report; set output_dir")
        with ExitStack() as restored:
            # The training changes settings of the process, which are restored. Standard output is not
            # redirected, because other threads print too.
            restored.enter_context(torch.random.fork_rng())
            restored.callback(torch.set_num_threads, torch.get_num_threads())
            restored.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            logger, handler = logging.getLogger(MODULE), logging.StreamHandler()
            restored.callback(logger.setLevel, logger.level)
            restored.callback(logger.removeHandler, handler)
            if self.verbose:
                logger.addHandler(handler)
                logger.setLevel(logging.INFO)
            # It knows the default model by its name, in whose place comes a path below
            config = with_head(config, len(rows), len(names), has_pairs)
            place = checkpoint_place(config.model, str(self.cache_dir or config.data.cache_dir))
            model = config.model if place is None else replace(config.model, name=str(place))
            # The rows of one call are of no use to the next
            data = replace(config.data, cache_dir=str(folder / "cache"))
            with Single(replace(config, model=model, data=data)) as mode:
                try:
                    with open_run("single", mode, with_report) as run:
                        status = run.run()
                except Stopped as stop:
                    status = 128 + stop.number
        if status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if status:
            raise TrainingError(f"the training was stopped by signal {status - 128}")
        if self.verbose and with_report:
            print((Path(config.output.dir) / "report.txt").read_text(encoding="utf-8"))  # noqa: T201
        return Path(config.output.dir)

    def predict_proba(self, X: Iterable) -> np.ndarray:
        """Return the probability of each class, (num_texts, num_classes) float64, as in `classes_`."""
        check_is_fitted(self, "model_")
        return self.model_.predict_proba(X)[:, self._columns]

    def predict(self, X: Iterable) -> np.ndarray:
        """Return the label of each text, (num_texts,), as `model_` decides, of the type that `fit` got."""
        check_is_fitted(self, "model_")
        id_of_name = {str(label): at for at, label in enumerate(self.classes_.tolist())}
        ids = [id_of_name[name] for name in self.model_.predict(X)]
        return self.classes_[np.array(ids, dtype=int)]

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the parameters, by their dotted names."""
        named = {f"train.{key}": getattr(self, key) for key in OF_TRAIN} | {"train.seed": self.random_state}
        named |= {"model.name": self.model, "data.max_length": self.max_length}
        named |= {"data.dev_size": self.dev_size, "output.dir": self.output_dir and str(self.output_dir)}
        given = {key: value for key, value in named.items() if value is not None}
        settings = self.settings or {}
        taken = {f"data.{name}" for name in SET_BY_FIT} | set(given) - {"train.device", "data.dev_size"}
        if wrong := sorted(taken & set(map(str, settings))):
            raise InputError(
                f"{wrong[0]} follows from what fit is given, or from a parameter; leave it out of settings"
            )
        return given | settings

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags
