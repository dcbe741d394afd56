"""Baselines: the most frequent answer or the mean, and a linear model on TF-IDF of characters."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.dataset import Split
from ..tasks.task import Task
from ..tasks.thresholds import DEFAULT_THRESHOLD, choose_thresholds
from ..words import N_
from .bootstrap import answer_metrics
from .drawn_rows import distinct_rows

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

MAX_CHARACTERS = 256  # of a text
MAX_ROWS = 20_000  # trained on, and measured
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
MAJORITY = N_("majority class")
MOST_FREQUENT_SET = N_("most frequent set")
MEAN = N_("mean")
LOGISTIC_REGRESSION = N_("TF-IDF + logistic regression")
NAIVE_BAYES = N_("TF-IDF + naive Bayes")
RIDGE = N_("TF-IDF + ridge")


@dataclass(frozen=True)
class Sample:
    """Some rows of a split; `labels` (num_rows, ...) are as their task has them."""

    texts: list[str]
    labels: np.ndarray


@dataclass(frozen=True)
class Baseline:
    """A simple model, and its answers for the rows of the report, (num_rows, ...)."""

    name: str
    predicted: np.ndarray


def sample(split: Split) -> Sample:
    """Return texts and labels of at most `MAX_ROWS` rows, drawn at random, in their order."""
    positions = np.arange(len(split))
    if len(positions) > MAX_ROWS:
        drawn = np.random.default_rng(0).choice(positions, MAX_ROWS, replace=False)
        positions = np.sort(drawn)
    texts = split.table.joined_texts(np.asarray(split.rows)[positions])
    short_texts = [text[:MAX_CHARACTERS] for text in texts]
    return Sample(short_texts, np.asarray(split.labels)[positions])


def baselines(task: Task, train: Sample, dev: Sample | None, report_rows: Sample) -> dict[str, dict]:
    """Return metrics, `intervals` and `rows` of simple models on the rows of the report, by name. The time is
    bounded, about 15 seconds at most, and the same data give the same models."""
    labels = report_rows.labels
    if labels.ndim == 2:
        labels = labels.astype(bool)
    metrics = {}
    for baseline in (
        constant_baseline(train, labels),
        linear_baseline(task, train, dev, report_rows.texts),
    ):
        metrics[baseline.name] = answer_metrics(task, labels, baseline.predicted)
        metrics[baseline.name]["rows"] = len(labels)
    return metrics


def constant_baseline(train: Sample, labels: np.ndarray) -> Baseline:
    """Give all rows the mean or the most frequent answer of the training; `labels` are those of the rows."""
    if labels.dtype.kind == "f":
        name = MEAN
        answer = train.labels.mean()
    else:
        (answers,), counts = distinct_rows(train.labels)
        name = MAJORITY if labels.ndim == 1 else MOST_FREQUENT_SET
        answer = answers[counts.argmax()]
    predicted = np.broadcast_to(answer, labels.shape)
    return Baseline(name, predicted.astype(labels.dtype))


def linear_baseline(task: Task, train: Sample, dev: Sample | None, texts: list[str]) -> Baseline:
    """Train a linear model: ridge regression for numbers; logistic regression, of many labels naive Bayes.
    Several labels a row have thresholds, chosen on dev (0.5 without)."""
    is_number = train.labels.dtype.kind == "f"
    num_labels = len(task.label_names)
    vectorizer = character_vectorizer(num_labels, np.float64 if is_number else np.float32)
    features = vectorizer.fit_transform(train.texts)
    if is_number:
        return ridge_baseline(features, train.labels, vectorizer.transform(texts))
    if train.labels.ndim == 2:
        return several_labels_baseline(vectorizer, features, train.labels, dev, texts)
    return one_label_baseline(features, train.labels, num_labels, vectorizer.transform(texts))


def character_vectorizer(num_labels: int, dtype: type) -> TfidfVectorizer:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        analyzer="char",
        ngram_range=(1, 2),
        sublinear_tf=True,
        max_features=int(np.clip(MAX_WEIGHTS // num_labels, MIN_FEATURES, MAX_FEATURES)),
        dtype=dtype,
    )


def ridge_baseline(features: Any, numbers: np.ndarray, report_features: Any) -> Baseline:
    from sklearn.linear_model import Ridge

    mean = numbers.mean()
    model = Ridge(3.0, fit_intercept=False, solver="lsqr")
    model.fit(with_column_of_ones(features), numbers - mean)
    return Baseline(RIDGE, mean + model.predict(with_column_of_ones(report_features)))


def with_column_of_ones(features: Any) -> Any:
    from scipy.sparse import csr_array, hstack

    ones = csr_array(np.ones((features.shape[0], 1)))
    return hstack([features, ones]).tocsr()


def one_label_baseline(features: Any, labels: np.ndarray, num_labels: int, report_features: Any) -> Baseline:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB

    name = NAIVE_BAYES
    model = ComplementNB()
    if num_labels <= MAX_REGRESSION_CLASSES and len(np.unique(labels)) > 1:
        name = LOGISTIC_REGRESSION
        products = features.nnz * num_labels  # of an iteration
        iterations = int(np.clip(MAX_PRODUCTS // products, MIN_ITERATIONS, MAX_ITERATIONS))
        model = LogisticRegression(C=5, max_iter=iterations, tol=1e-3)
    fit_quietly(model, features, labels)
    return Baseline(name, model.predict(report_features))


def several_labels_baseline(
    vectorizer: TfidfVectorizer, features: Any, labels: np.ndarray, dev: Sample | None, texts: list[str]
) -> Baseline:
    """Train a model for each label, on `features` and `labels`, (num_rows, num_labels)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.naive_bayes import ComplementNB

    num_labels = labels.shape[1]
    name = NAIVE_BAYES
    model_of_label = ComplementNB()
    if num_labels <= MAX_REGRESSIONS:
        name = LOGISTIC_REGRESSION
        step = math.ceil(features.nnz * num_labels / MAX_LABELS_X_VALUES)
        features = features[::step]
        labels = labels[::step]
        model_of_label = LogisticRegression(C=30, solver="liblinear", max_iter=30, tol=1e-2, random_state=0)
    model = OneVsRestClassifier(model_of_label)
    fit_quietly(model, features, labels)
    thresholds: np.ndarray | float = DEFAULT_THRESHOLD
    if dev is not None:
        dev_probabilities = label_probabilities(model, vectorizer.transform(dev.texts))
        thresholds = choose_thresholds(dev.labels, dev_probabilities)
    probabilities = label_probabilities(model, vectorizer.transform(texts))
    return Baseline(name, probabilities - thresholds >= 0)


def label_probabilities(model: Any, features: Any) -> np.ndarray:
    return model.predict_proba(features).astype(np.float64)


def fit_quietly(model: Any, features: Any, labels: np.ndarray) -> None:
    """Fit a model without warnings: it need not be the best, and a label may have no row in the sample."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(features, labels)
