"""The trainer as an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError, excerpt, shorten
from ..prediction.open_model import ComputeOptions
from ..runtime.model_lock import MODEL_LOCK
from .checked_texts import check_ordered, rows_of
from .fitting import check_settings, train_folder, write_rows
from .model import Model


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
        check_settings(self.settings)
        rows = rows_of(X)
        classes, names, ids = _classes(y, len(rows))
        temporary = TemporaryDirectory(prefix="chinese-text-classifier-")
        try:
            folder = Path(temporary.name)
            settings = self._settings() | write_rows(folder, rows, [names[label] for label in ids])
            with MODEL_LOCK:
                run = train_folder(folder, settings, names, len(rows), self.cache_dir, self.verbose)
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
        named = {"model.name": self.model, "train.seed": self.random_state, "train.device": self.device}
        of_train = ("epochs", "max_steps", "batch_size", "learning_rate", "early_stopping", "class_weights")
        for key in (*of_train, "precision"):
            named[f"train.{key}"] = getattr(self, key)
        named |= {"data.max_length": self.max_length, "data.dev_size": self.dev_size}
        named["output.dir"] = None if self.output_dir is None else str(self.output_dir)
        given = {key: value for key, value in named.items() if value is not None}
        if twice := sorted(set(given) & set(self.settings or {}) - {"train.device", "data.dev_size"}):
            raise InputError(
                f"a setting is given once, found {twice[0]} as a parameter and in settings; remove one"
            )
        return given | (self.settings or {})

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _classes(y: Iterable, num_rows: int) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Return the classes, sorted, their names, and the index of each row's class."""
    check_ordered(y, "labels")
    y = y if hasattr(y, "to_numpy") or isinstance(y, np.ndarray) else list(y)
    labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    values = labels.tolist() if isinstance(y, np.ndarray) or labels.ndim != 1 else list(y)
    if labels.ndim != 1 or len(labels) != num_rows:
        raise InputError(
            f"y must have one label for each text, found shape {labels.shape} for {num_rows:,} texts"
        )
    kinds = {str: (str,), int: (int, np.integer, np.bool_)}
    if not any(all(isinstance(value, kind) for value in values) for kind in kinds.values()):
        wrong = [excerpt(value) for value in values if not isinstance(value, (str, *kinds[int]))]
        raise InputError(f"labels must be all strings or all integers, found {wrong[0] if wrong else 'both'}")
    classes, ids = np.unique(labels, return_inverse=True)
    names = [str(label) for label in classes.tolist()]
    if wrong := [name for name in names if name != name.strip() or not name]:
        raise InputError(
            f"labels must be names without white space around them, not empty, found '{shorten(wrong[0])}'"
        )
    if len(names) < 2:
        raise InputError(f"at least two different labels are needed, found {names}")
    return classes, names, ids
