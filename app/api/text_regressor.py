"""The trainer as a regressor of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..data.labels import task_of_labels
from ..errors import InputError
from ..program import MODULE
from .labels import numbers_of
from .text_estimator import TextEstimator, TrainingRows
from .texts import rows_of


class TextRegressor(RegressorMixin, TextEstimator):
    """A regressor, which gives texts numbers, such as scores; trained as run_single.py trains it with
    `data.task` regression. Its parameters are those of `TextClassifier`, without `class_weights`; `score` is
    the coefficient of determination.

    After `fit`: `model_` is the trained `Model`, whose `save` writes it.
    """

    # Pickles made in a clone open where the package is installed, and the reverse.
    __module__ = MODULE

    def fit(self, X: Iterable, y: Any) -> TextRegressor:
        """Train on texts `X` (num_rows,), or pairs of texts (num_rows, 2), and numbers `y` (num_rows,).
        Raises what `TextClassifier.fit` raises."""
        settings = self._settings()
        texts = rows_of(X)
        numbers = numbers_of(y)
        if len(numbers) != len(texts):
            raise InputError(
                f"y must have one number for each text, found shape ({len(numbers)},) for {len(texts):,} "
                "texts"
            )
        task = task_of_labels(are_numbers=True)
        rows = TrainingRows(texts=texts, answers=numbers, task=task, label_names=[])
        self._fit(rows, settings)
        return self

    def predict(self, X: Iterable) -> np.ndarray:
        """Return the number of each text, (num_texts,) float64."""
        check_is_fitted(self, "model_")
        return self.model_.predict(X)
