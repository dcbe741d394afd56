"""The trainer as an estimator of scikit-learn."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..config.command_line import config_of
from ..config.shipped import MODULE
from ..data.read import ReadOptions
from ..data.rows import Row
from ..errors import InputError, TrainingError, excerpt, shorten
from ..prediction.open_model import ComputeOptions
from ..runtime.processes import MODEL_LOCK
from .model import Model, check_ordered, rows_of

# `fit` sets these settings of data from what it is given.
SET_BY_FIT = ("train", "dev", "test", "test_size", "format", "task", "labels", "text_column", "label_column")
SET_BY_FIT += ("text_pair_column", "header", "encoding", "quoting", "on_bad_row", "cache_dir")
# Parameters that are settings of train by the same name
OF_TRAIN = ("epochs", "max_steps", "batch_size", "learning_rate", "early_stopping", "class_weights")
OF_TRAIN += ("precision", "device")


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
        self.model = model
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.dev_size = dev_size
        self.early_stopping = early_stopping
        self.class_weights = class_weights
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.settings = settings
        self.output_dir = output_dir
        self.cache_dir = cache_dir
        self.verbose = verbose

    def fit(self, X: Iterable, y: Iterable) -> TextClassifier:
        """Train on texts `X` (num_rows,), or pairs of texts (num_rows, 2), and labels `y` (num_rows,).

        Labels are strings or integers. Raises InputError (a ValueError) for bad texts, labels and settings,
        and TrainingError for a training that cannot continue.
        """
        settings = self._settings()
        rows = rows_of(X, ReadOptions())
        classes, names, ids = _classes(y, len(rows))
        temporary = TemporaryDirectory(prefix="chinese-text-classifier-")
        try:
            with MODEL_LOCK:
                run = self._train(Path(temporary.name), settings, rows, names, ids)
                kept = temporary if self.output_dir is None else None
                model = Model(run, ComputeOptions(self.device), kept)
        except BaseException:
            temporary.cleanup()
            raise
        if self.output_dir is not None:
            temporary.cleanup()
        self.classes_, self.model_ = classes, model
        self._columns = [model.label_names.index(name) for name in names]
        return self

    def _train(
        self, folder: Path, settings: dict[str, Any], rows: list[Row], names: list[str], ids: np.ndarray
    ) -> Path:
        """Train with settings by their dotted names and return the run's folder; without `output_dir` it is
        in `folder`, and has no report. Raises KeyboardInterrupt after Ctrl-C."""
        from ..model.pretrained import checkpoint_place
        from ..model.recipe import with_head
        from ..modes import open_mode
        from ..runtime.group import Stopped
        from ..training.train import Run

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
        config = config_of(given | {"output.name": "fit"}, "settings")
        with _undisturbed(self.verbose):
            # While the model has its name
            config = with_head(config, len(rows), len(names), has_pairs)
            place = checkpoint_place(config.model, str(self.cache_dir or config.data.cache_dir))
            model = config.model if place is None else replace(config.model, name=str(place))
            # The rows of one call are of no use to the next
            data = replace(config.data, cache_dir=str(folder / "cache"))
            with open_mode("single", replace(config, model=model, data=data)) as mode:
                try:
                    status = Run("single", mode, with_report).run()
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
        """Return the label of each text, (num_texts,), of the type that `fit` was given."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the parameters, by their dotted names."""
        named = {f"train.{key}": getattr(self, key) for key in OF_TRAIN} | {"train.seed": self.random_state}
        named |= {
            "model.name": self.model,
            "data.max_length": self.max_length,
            "data.dev_size": self.dev_size,
        }
        named["output.dir"] = None if self.output_dir is None else str(self.output_dir)
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


def _classes(y: Iterable, num_rows: int) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Return the classes, sorted, their names, and the index of each row's class."""
    check_ordered(y, "labels")
    values = y.tolist() if hasattr(y, "tolist") else list(y)
    if len(values) != num_rows:
        raise InputError(
            f"y must have one label for each text, found shape ({len(values)},) for {num_rows:,} texts"
        )
    whole = (int, np.integer, np.bool_)
    kinds = {str if isinstance(value, str) else int if isinstance(value, whole) else None for value in values}
    if None in kinds or len(kinds) > 1:
        wrong = [excerpt(value) for value in values if not isinstance(value, (str, *whole))]
        raise InputError(f"labels must be all strings or all integers, found {wrong[0] if wrong else 'both'}")
    classes, ids = np.unique(np.array(values), return_inverse=True)
    names = [str(label) for label in classes.tolist()]
    if wrong := [name for name in names if name != name.strip() or not name]:
        raise InputError(
            f"labels must be names without white space around them, not empty, found '{shorten(wrong[0])}'"
        )
    if len(names) < 2:
        raise InputError(f"at least two different labels are needed, found {names}")
    return classes, names, ids


@contextmanager
def _undisturbed(verbose: bool) -> Iterator[None]:
    """Show the trainer's log lines, or none, and restore torch's random state, its number of threads and its
    choice of kernels afterwards. Standard output is not redirected: other threads print too."""
    import torch

    logger, handler = logging.getLogger(MODULE), logging.StreamHandler()
    level, threads = logger.level, torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    if verbose:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    with torch.random.fork_rng():
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)
