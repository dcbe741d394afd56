"""The trainer as a classifier of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from ..data.labels import task_of_labels
from ..errors import InputError
from ..program import MODULE
from .labels import (
    check_each_has_rows,
    check_names,
    indicators,
    label_array,
    list_array,
    name_of,
    read_labels,
)
from .text_estimator import TextEstimator, TrainingRows
from .texts import rows_of


class TextClassifier(ClassifierMixin, TextEstimator):
    """A classifier of texts with one label or several each, trained as run_single.py trains it, in this
    process.

    It works in `Pipeline`, `cross_val_score` and `GridSearchCV`. A parameter that is None has the trainer's
    default (`python run_single.py --help all`). `model` is `model.name`, None for e5-small-zh;
    `random_state` is `train.seed`; the others are settings of `data` and `train`. `settings` has any other
    ones by their dotted names, as in {"train.weight_decay": 0.1}.

    All rows given to `fit` are trained on, and the model of the last step is kept. With `dev_size`, a
    fraction or a number of rows, so many rows choose the best evaluation instead, and make `early_stopping`
    possible.

    `output_dir` keeps the run there, with its report; None: only the model is kept, in a temporary folder, as
    long as this object lives. `cache_dir` has pretrained models. `verbose` shows the log.

    After `fit`: `classes_` (num_classes,) are the labels, sorted; of an indicator matrix they are its columns
    in their order. `model_` is the trained `Model`, whose `save` writes it.
    """

    # Pickles made in a clone open where the package is installed, and the reverse.
    __module__ = MODULE

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
        super().__init__(
            model=model,
            epochs=epochs,
            max_steps=max_steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            max_length=max_length,
            dev_size=dev_size,
            early_stopping=early_stopping,
            precision=precision,
            device=device,
            random_state=random_state,
            settings=settings,
            output_dir=output_dir,
            cache_dir=cache_dir,
            verbose=verbose,
        )
        self.class_weights = class_weights

    def fit(self, X: Iterable, y: Any) -> TextClassifier:
        """Train on texts `X` (num_rows,), or pairs of texts (num_rows, 2), and labels `y`.

        Labels (num_rows,) are strings, whole numbers or truth values, of one type. Each stays itself:
        `predict` gives it back. For several labels a text, `y` is an indicator matrix (num_rows, num_labels)
        of 0 and 1, of which a data frame names the labels, or a list of lists of labels.

        Raises InputError (a ValueError) for bad texts, labels and settings, also for labels that a file could
        not tell apart, and TrainingError for a training that cannot continue. Without the data file of
        e5-small-zh, the default model, the InputError has the command that fetches it.
        """
        settings = self._settings()
        texts = rows_of(X)
        labels = read_labels(y)
        num_labels = len(labels.rows)
        if num_labels != len(texts):
            raise InputError(
                f"y must have one label for each text, found shape ({num_labels},) for {len(texts):,} texts"
            )
        check_names(labels.names)
        if labels.is_matrix:
            check_each_has_rows(labels)
        rows = TrainingRows(
            texts=texts,
            answers=labels.names_of_rows(),
            task=task_of_labels(has_several=labels.has_several),
            label_names=labels.names,
        )
        self._fit(rows, settings)
        # NumPy would cut zero characters off strings, and make floats of large integers
        self.classes_ = label_array(labels.classes)
        self._has_several = labels.has_several
        self._is_matrix = labels.is_matrix
        self._columns = [self.model_.label_names.index(name) for name in labels.names]
        return self

    def predict_proba(self, X: Iterable) -> np.ndarray:
        """Return the probability of each class, (num_texts, num_classes) float64, as in `classes_`. Where
        texts have several labels, the probabilities of a text do not add up to 1."""
        check_is_fitted(self, "model_")
        return self.model_.predict_proba(X)[:, self._columns]

    def predict(self, X: Iterable) -> np.ndarray:
        """Return the label of each text, (num_texts,), as `model_` decides, of the type that `fit` got. Where
        texts have several labels: a matrix of 0 and 1 (num_texts, num_classes), or lists of labels, as `fit`
        got them."""
        check_is_fitted(self, "model_")
        answers = self.model_.predict(X)
        classes = self.classes_.tolist()
        id_of_name = {name_of(label): class_id for class_id, label in enumerate(classes)}
        if self._is_matrix:
            return indicators(answers, id_of_name)
        if self._has_several:
            label_lists = []
            for names in answers:
                label_lists.append([classes[id_of_name[name]] for name in names])
            return list_array(label_lists)
        ids = [id_of_name[name] for name in answers]
        return self.classes_[np.array(ids, dtype=int)]

    def score(self, X: Iterable, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy. Where texts have several labels it is the part of texts whose labels are all
        right and complete, as in scikit-learn."""
        check_is_fitted(self, "model_")
        predicted = self.predict(X)
        if self._has_several:
            labels = read_labels(y)
            all_labels = {*self.classes_.tolist(), *labels.classes}
            columns = {label: column for column, label in enumerate(all_labels)}
            y = indicators(labels.rows, columns)
            if self._is_matrix:
                predicted = labels_of_indicators(predicted, self.classes_.tolist())
            predicted = indicators(predicted, columns)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def labels_of_indicators(matrix: np.ndarray, classes: list) -> list[list]:
    """Return the labels of each row of a matrix of 0 and 1, (num_rows, num_classes)."""
    label_lists = []
    for row in matrix.tolist():
        label_lists.append([label for label, value in zip(classes, row, strict=True) if value])
    return label_lists
