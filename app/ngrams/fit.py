"""The one function that fits a linear model of character n-grams, for every kind of answer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.label_shares import weighted_rows, with_and_without
from ..words import N_
from .character_model import CharacterModel, beginnings, character_vectorizer

MAX_FEATURES = 50_000
MIN_FEATURES = 2_000
MAX_WEIGHTS = 5_000_000  # features x classes; naive Bayes has several tables of that size
MAX_REGRESSION_CLASSES = 50  # of logistic regression; beyond them its time grows with their number
MAX_PRODUCTS = 600_000_000  # of all iterations of logistic regression
MIN_ITERATIONS = 15
MAX_ITERATIONS = 100
MAX_REGRESSIONS = 500  # one for each label, where rows have several labels; more labels have naive Bayes
# Labels x values that are not 0 in the features; with more, every second, third ... row is trained on.
# 60 million take 9 seconds on one core.
MAX_LABELS_X_VALUES = 100_000_000
CERTAIN_LOGIT = 40.0  # of a label that all rows have; that of a label that no row has is the negative of it
LOGISTIC_REGRESSION = N_("TF-IDF + logistic regression")
NAIVE_BAYES = N_("TF-IDF + naive Bayes")
RIDGE = N_("TF-IDF + ridge")


def fit_characters(
    texts: Sequence[str], labels: np.ndarray, num_labels: int, targets: np.ndarray | None = None
) -> CharacterModel:
    """Fit a linear model: ridge regression for numbers; logistic regression, of many labels naive Bayes.

    `labels` are numbers (num_rows,), class ids (num_rows,), or 0 and 1 for each label, (num_rows,
    num_labels). Where rows have distributions of labels, `targets` (num_rows, num_labels) are these, and a
    row counts once for each label, with its share as the weight. The outputs are numbers, or a logit for each
    label: its softmax, or for several labels a row its sigmoid, is the probability. The time is bounded,
    about 15 seconds at most for 20,000 rows, and the same rows give the same model.
    """
    is_number = labels.dtype.kind == "f"
    vectorizer = character_vectorizer(
        max_features=int(np.clip(MAX_WEIGHTS // num_labels, MIN_FEATURES, MAX_FEATURES)),
        dtype=np.float64 if is_number else np.float32,
    )
    features = vectorizer.fit_transform(beginnings(texts))
    if is_number:
        method = RIDGE
        weights, bias = fit_numbers(features, labels)
    elif labels.ndim == 2:
        method, weights, bias = fit_several_labels(features, labels, targets)
    else:
        row_weights = None
        if targets is not None:
            rows, labels, row_weights = weighted_rows(targets)
            features = features[rows]
        method, weights, bias = fit_one_label(features, labels, num_labels, row_weights)
    return CharacterModel(
        method=method,
        ngrams=vectorizer.get_feature_names_out().tolist(),
        idf=vectorizer.idf_,
        weights=np.ascontiguousarray(weights.T, features.dtype),
        bias=bias,
    )


def fit_numbers(features: Any, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (1, num_features) and the bias (1,) of ridge regression."""
    from scipy.sparse import csr_array, hstack
    from sklearn.linear_model import Ridge

    mean = numbers.mean()
    ones = csr_array(np.ones((features.shape[0], 1)))
    model = Ridge(3.0, fit_intercept=False, solver="lsqr")
    model.fit(hstack([features, ones]).tocsr(), numbers - mean)
    return model.coef_[None, :-1], model.coef_[-1:] + mean


def fit_one_label(
    features: Any, labels: np.ndarray, num_labels: int, row_weights: np.ndarray | None = None
) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the method, the weights (num_labels, num_features) and the bias (num_labels,). A class without
    rows is never the most probable one. `row_weights` (num_rows,) say how much each row counts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB

    classes = np.unique(labels)
    weights = np.zeros((num_labels, features.shape[1]), features.dtype)
    bias = np.full(num_labels, -CERTAIN_LOGIT)
    bias[classes] = 0
    if num_labels > MAX_REGRESSION_CLASSES or len(classes) == 1:
        model = fit_quietly(ComplementNB(), features, labels, row_weights)
        weights[classes] = model.feature_log_prob_
        return NAIVE_BAYES, weights, bias
    products = features.nnz * num_labels  # of an iteration
    iterations = int(np.clip(MAX_PRODUCTS // products, MIN_ITERATIONS, MAX_ITERATIONS))
    regression = LogisticRegression(C=5, max_iter=iterations, tol=1e-3)
    model = fit_quietly(regression, features, labels, row_weights)
    if len(classes) == 2:
        # Of two classes there is only the logit of the second one
        classes = classes[1:]
    weights[classes] = model.coef_
    bias[classes] = model.intercept_
    return LOGISTIC_REGRESSION, weights, bias


def fit_several_labels(
    features: Any, labels: np.ndarray, targets: np.ndarray | None = None
) -> tuple[str, np.ndarray, np.ndarray]:
    """Fit a model for each label, on `labels` (num_rows, num_labels), or on the probabilities `targets`.
    Return the method, the weights (num_labels, num_features) and the bias (num_labels,)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB

    num_labels = labels.shape[1]
    method = NAIVE_BAYES
    if num_labels <= MAX_REGRESSIONS:
        method = LOGISTIC_REGRESSION
        step = math.ceil(features.nnz * num_labels / MAX_LABELS_X_VALUES)
        features = features[::step]
        labels = labels[::step]
        if targets is not None:
            targets = targets[::step]
    weights = np.zeros((num_labels, features.shape[1]), features.dtype)
    bias = np.zeros(num_labels)
    all_features = features
    for label in range(num_labels):
        has_label = labels[:, label]
        row_weights = None
        if targets is not None:
            rows, has_label, row_weights = weighted_rows(with_and_without(targets[:, label]))
            features = all_features[rows]
        if has_label.all() or not has_label.any():
            bias[label] = CERTAIN_LOGIT if has_label.all() else -CERTAIN_LOGIT
        elif method == NAIVE_BAYES:
            model = fit_quietly(ComplementNB(), features, has_label, row_weights)
            without, with_label = model.feature_log_prob_
            weights[label] = with_label - without
        else:
            model = LogisticRegression(C=30, solver="liblinear", max_iter=30, tol=1e-2, random_state=0)
            fit_quietly(model, features, has_label, row_weights)
            weights[label] = model.coef_[0]
            bias[label] = model.intercept_[0]
    return method, weights, bias


def fit_quietly(model: Any, features: Any, labels: np.ndarray, row_weights: np.ndarray | None = None) -> Any:
    """Fit a model without warnings, because it need not be the best one, and return it. `row_weights`
    (num_rows,) say how much each row counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(features, labels, sample_weight=row_weights)
