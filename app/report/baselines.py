"""Baselines: the most frequent answer or the mean, and a linear model on TF-IDF of characters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
STRENGTH = 3.0  # of ridge regression
SIZES = (1, 2, 3)  # characters in the pieces that two texts may share
MAJORITY, MOST_FREQUENT_SET, MEAN = N_("majority class"), N_("most frequent set"), N_("mean")
LOGISTIC_REGRESSION = N_("TF-IDF + logistic regression")
NAIVE_BAYES = N_("TF-IDF + naive Bayes")
RIDGE, RIDGE_OF_PAIRS = N_("TF-IDF + ridge"), N_("shared TF-IDF + ridge")


@dataclass(frozen=True)
class Texts:
    """Texts with `labels`, (num_rows, ...) as their task has them; `read` returns those at positions, each
    one or two texts."""

    labels: np.ndarray
    read: Callable[[np.ndarray], list[tuple[str, ...]]]

    def sample(self) -> tuple[list[tuple[str, ...]], np.ndarray]:
        """Return the texts and labels of at most `MAX_ROWS` rows, drawn at random, in their order."""
        positions = np.arange(len(self.labels))
        if len(positions) > MAX_ROWS:
            positions = np.sort(np.random.default_rng(0).choice(positions, MAX_ROWS, replace=False))
        return self.read(positions), self.labels[positions]


def split_texts(split: Split) -> Texts:
    """Return the texts of a split."""
    rows, table = np.asarray(split.rows), split.table
    if table.has_pairs:
        return Texts(np.asarray(split.labels), lambda positions: table.texts(rows[positions]))
    return Texts(np.asarray(split.labels), lambda at: [(text,) for text in table.joined_texts(rows[at])])


def baselines(task: Task, train: Texts, dev: Texts | None, report: Texts) -> dict[str, dict]:
    """Return metrics, `intervals` and `rows` of simple models on the rows of the report, by name. The time is
    bounded, about 15 seconds at most, and the same data give the same models."""
    if train.labels.dtype.kind == "f":
        constant, answer = MEAN, train.labels.mean()
        name, labels, predicted = ridge(train, report)
    else:
        constant = MAJORITY if train.labels.ndim == 1 else MOST_FREQUENT_SET
        (answers,), counts = distinct_rows(_typed(train.labels))
        answer = answers[counts.argmax()]
        name, labels, predicted = linear(task, train, dev, report)
    same = np.broadcast_to(answer, report.labels.shape)
    found = {constant: (report.labels, same), name: (labels, predicted)}
    return {
        name: answer_metrics(task, _typed(labels), told) | {"rows": len(labels)}
        for name, (labels, told) in found.items()
    }


def _typed(labels: np.ndarray) -> np.ndarray:
    return labels.astype(bool) if labels.ndim == 2 else labels


def character_tfidf(max_features: int, dtype: type) -> Any:
    """Return what makes features of texts: TF-IDF of characters and pairs of characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    options = {"analyzer": "char", "ngram_range": (1, 2), "sublinear_tf": True}
    return TfidfVectorizer(max_features=max_features, dtype=dtype, **options)


def _joined(texts: list[tuple[str, ...]]) -> list[str]:
    return ["\n".join(of_row)[:MAX_CHARACTERS] for of_row in texts]


def linear(task: Task, train: Texts, dev: Texts | None, report: Texts) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the name of a linear classifier, and labels and predictions of the rows of the report: logistic
    regression or, of many labels, naive Bayes. With several labels a row it has thresholds, chosen on dev
    (0.5 without)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.naive_bayes import ComplementNB

    (texts, labels), num_labels = train.sample(), len(task.label_names)
    max_features = int(np.clip(MAX_WEIGHTS // num_labels, MIN_FEATURES, MAX_FEATURES))
    vectorizer = character_tfidf(max_features, np.float32)
    features, has_several = vectorizer.fit_transform(_joined(texts)), labels.ndim == 2
    name, model = LOGISTIC_REGRESSION, None
    if has_several and num_labels <= MAX_LABELS:
        step = -(-features.nnz * num_labels // MAX_LABELS_X_VALUES)
        features, labels = features[::step], labels[::step]
        model = LogisticRegression(C=30, solver="liblinear", max_iter=30, tol=1e-2, random_state=0)
    elif num_labels <= MAX_CLASSES and len(np.unique(labels)) > 1:
        iterations = int(np.clip(MAX_PRODUCTS // (features.nnz * num_labels), *ITERATIONS))
        model = LogisticRegression(C=5, max_iter=iterations, tol=1e-3)
    if model is None:
        name, model = NAIVE_BAYES, ComplementNB()
    with warnings.catch_warnings():
        # The model need not be the best, and a label may have no row in the sample
        warnings.simplefilter("ignore")
        model = (OneVsRestClassifier(model) if has_several else model).fit(features, labels)

    def told(rows: Texts) -> tuple[np.ndarray, np.ndarray]:
        texts, labels = rows.sample()
        features = vectorizer.transform(_joined(texts))
        if not has_several:
            return labels, model.predict(features)
        return labels, model.predict_proba(features).astype(np.float64)

    labels, predicted = told(report)
    if has_several:
        thresholds = DEFAULT_THRESHOLD if dev is None else choose_thresholds(*told(dev))
        predicted = predicted - thresholds >= 0
    return name, labels, predicted


def ridge(train: Texts, report: Texts) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the name of ridge regression, and numbers and predictions, both (num_rows,). For pairs the
    features are what both texts have in common, and what only one of them has."""
    from scipy.sparse import csr_array, hstack
    from sklearn.linear_model import Ridge

    tfidf = character_tfidf(MAX_FEATURES, np.float64)
    texts, numbers = train.sample()
    tfidf.fit(_joined(texts))

    def features(texts: list[tuple[str, ...]]) -> Any:
        parts = [[text[:MAX_CHARACTERS] for text in part] for part in zip(*texts, strict=True)]
        one, *others = map(tfidf.transform, parts)
        # A constant; of pairs also their cosine, and the share of pieces that both texts have
        dense = [np.ones((len(texts), 1))]
        if not others:
            return hstack([one, csr_array(dense[0])]).tocsr()
        dense.append(np.asarray(one.multiply(others[0]).sum(axis=1)).reshape(-1, 1))
        pairs = zip(*parts, strict=True)
        dense.append(np.array([[_shared(*pair, size) for size in SIZES] for pair in pairs]))
        return hstack([one.minimum(others[0]), abs(one - others[0]), csr_array(np.hstack(dense))]).tocsr()

    center = numbers.mean()
    model = Ridge(STRENGTH, fit_intercept=False, solver="lsqr").fit(features(texts), numbers - center)
    name = RIDGE if len(texts[0]) == 1 else RIDGE_OF_PAIRS
    texts, numbers = report.sample()
    return name, numbers, center + model.predict(features(texts))


def _shared(one: str, other: str, size: int) -> float:
    pieces = [{text[at : at + size] for at in range(len(text) - size + 1)} for text in (one, other)]
    return len(pieces[0] & pieces[1]) / max(1, len(pieces[0] | pieces[1]))
