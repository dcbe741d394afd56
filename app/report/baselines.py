"""Baselines: the most frequent answer or the mean, and a linear model on TF-IDF of characters."""

from __future__ import annotations

import warnings

import numpy as np

from ..data.dataset import Split
from ..tasks.task import DEFAULT_THRESHOLD, Task, choose_thresholds
from ..words import N_
from .bootstrap import answer_metrics
from .metrics import distinct_rows

MAX_CHARACTERS = 256  # of a text
MAX_ROWS = 20_000  # trained on, and measured
MAX_FEATURES, MIN_FEATURES = 50_000, 2_000
MAX_WEIGHTS = 5_000_000  # features x classes; naive Bayes has several tables of that size
MAX_CLASSES = 50  # of logistic regression; beyond them its time grows with their number
MAX_PRODUCTS, ITERATIONS = 600_000_000, (15, 100)  # of all its iterations, and how many these are
MAX_LABELS = 500  # of one logistic regression a label, for several labels a row; more have naive Bayes
# Labels x values that are not 0 in the features; with more, every second, third ... row is trained on.
# 60 million take 9 seconds on one core.
MAX_LABELS_X_VALUES = 100_000_000
MAJORITY, MOST_FREQUENT_SET, MEAN = N_("majority class"), N_("most frequent set"), N_("mean")
LOGISTIC_REGRESSION, NAIVE_BAYES = N_("TF-IDF + logistic regression"), N_("TF-IDF + naive Bayes")
RIDGE = N_("TF-IDF + ridge")

Sample = tuple[list[str], np.ndarray]  # texts, and labels (num_rows, ...) as their task has them


def sample(split: Split) -> Sample:
    """Return texts and labels of at most `MAX_ROWS` rows, drawn at random, in their order."""
    at, labels = np.arange(len(split)), np.asarray(split.labels)
    if len(at) > MAX_ROWS:
        at = np.sort(np.random.default_rng(0).choice(at, MAX_ROWS, replace=False))
    texts = split.table.joined_texts(np.asarray(split.rows)[at])
    return [text[:MAX_CHARACTERS] for text in texts], labels[at]


def baselines(task: Task, train: Sample, dev: Sample | None, report: Sample) -> dict[str, dict]:
    """Return metrics, `intervals` and `rows` of simple models on the rows of the report, by name. The time is
    bounded, about 15 seconds at most, and the same data give the same models."""
    texts, labels = report
    if labels.dtype.kind == "f":
        constant, answer = MEAN, train[1].mean()
    else:
        (answers,), counts = distinct_rows(train[1])
        constant = MAJORITY if labels.ndim == 1 else MOST_FREQUENT_SET
        answer = answers[counts.argmax()]
    name, predicted = linear(task, train, dev, texts)
    labels = labels.astype(bool) if labels.ndim == 2 else labels
    told = {constant: np.broadcast_to(answer, labels.shape).astype(labels.dtype), name: predicted}
    return {name: answer_metrics(task, labels, of) | {"rows": len(labels)} for name, of in told.items()}


def linear(task: Task, train: Sample, dev: Sample | None, texts: list[str]) -> tuple[str, np.ndarray]:
    """Return the name of a linear model and its answers: ridge regression for numbers; logistic regression,
    of many labels naive Bayes. With several labels a row it has thresholds, chosen on dev (0.5 without)."""
    from scipy.sparse import csr_array, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.naive_bayes import ComplementNB

    labels, num_labels, has_several = train[1], len(task.label_names), train[1].ndim == 2
    is_number = labels.dtype.kind == "f"
    options = {"analyzer": "char", "ngram_range": (1, 2), "sublinear_tf": True}
    options["max_features"] = int(np.clip(MAX_WEIGHTS // num_labels, MIN_FEATURES, MAX_FEATURES))
    vectorizer = TfidfVectorizer(dtype=np.float64 if is_number else np.float32, **options)
    features, wanted = vectorizer.fit_transform(train[0]), vectorizer.transform(texts)
    if is_number:
        with_one = [hstack([of, csr_array(np.ones((of.shape[0], 1)))]).tocsr() for of in (features, wanted)]
        model = Ridge(3.0, fit_intercept=False, solver="lsqr").fit(with_one[0], labels - labels.mean())
        return RIDGE, labels.mean() + model.predict(with_one[1])
    name, model = NAIVE_BAYES, ComplementNB()
    if has_several and num_labels <= MAX_LABELS:
        step = -(-features.nnz * num_labels // MAX_LABELS_X_VALUES)
        features, labels, name = features[::step], labels[::step], LOGISTIC_REGRESSION
        model = LogisticRegression(C=30, solver="liblinear", max_iter=30, tol=1e-2, random_state=0)
    elif num_labels <= MAX_CLASSES and len(np.unique(labels)) > 1:
        iterations = int(np.clip(MAX_PRODUCTS // (features.nnz * num_labels), *ITERATIONS))
        name, model = LOGISTIC_REGRESSION, LogisticRegression(C=5, max_iter=iterations, tol=1e-3)
    with warnings.catch_warnings():
        # The model need not be the best, and a label may have no row in the sample
        warnings.simplefilter("ignore")
        model = (OneVsRestClassifier(model) if has_several else model).fit(features, labels)
    if not has_several:
        return name, model.predict(wanted)
    thresholds = DEFAULT_THRESHOLD
    if dev is not None:
        chances = model.predict_proba(vectorizer.transform(dev[0])).astype(np.float64)
        thresholds = choose_thresholds(dev[1], chances)
    return name, model.predict_proba(wanted).astype(np.float64) - thresholds >= 0
