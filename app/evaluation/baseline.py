"""What costs nothing, to compare with: the most frequent class, and a linear model of characters trained in
seconds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..data.dataset import Split
from .measures.intervals import label_intervals

MAX_TRAIN_ROWS = MAX_ROWS = 20_000
# Of a text
MAX_CHARACTERS = 256
MAX_FEATURES, MIN_FEATURES = 50_000, 2_000
# Features x classes; naive Bayes has several tables of that size
MAX_WEIGHTS = 5_000_000
# Of logistic regression; beyond them its time grows with their number
MAX_CLASSES = 50
# Of all its iterations
MAX_PRODUCTS = 600_000_000
ITERATIONS = (15, 100)


@dataclass(frozen=True)
class Texts:
    """Texts with `labels`, class ids (num_rows,) or 0 and 1 (num_rows, num_labels); `read` returns those at
    increasing positions."""

    labels: np.ndarray
    read: Callable[[np.ndarray], list[str]]

    def sample(self, most: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
        """Return the texts and labels of at most `most` rows, drawn at random."""
        positions = np.arange(len(self.labels))
        if len(positions) > most:
            positions = np.sort(np.random.default_rng(seed).choice(positions, most, replace=False))
        return [text[:MAX_CHARACTERS] for text in self.read(positions)], self.labels[positions]


def split_texts(split: Split) -> Texts:
    """Return the texts of a split; the two texts of a pair as one."""

    def read(positions: np.ndarray) -> list[str]:
        rows = np.asarray(split.rows)[positions]
        order = np.argsort(rows, kind="stable")
        texts = split.table.texts(rows[order])
        if split.table.has_pairs:
            texts = [
                f"{one}\n{other}" for one, other in zip(texts, split.table.pairs(rows[order]), strict=True)
            ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return [texts[index] for index in back]

    return Texts(np.asarray(split.labels, np.int64), read)


def baselines(train: Texts, report: Texts, num_labels: int) -> dict[str, dict]:
    """Return `accuracy`, `macro_f1`, their `intervals` and `rows` of the baselines on the rows of the report,
    by name.

    Both numbers of rows are bounded, and so is the time: a few seconds. The same data give the same figures.
    """
    majority = np.full(len(report.labels), np.bincount(train.labels, minlength=num_labels).argmax())
    name, labels, predicted = _linear_model(train, report, num_labels)
    results = {"majority class": (report.labels, majority), name: (labels, predicted)}
    return {name: _figures(*pair, num_labels) for name, pair in results.items()}


def _linear_model(train: Texts, report: Texts, num_labels: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the name of the model, and the labels and predictions of rows of the report."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB

    (texts, train_labels), (others, labels) = train.sample(MAX_TRAIN_ROWS), report.sample(MAX_ROWS)
    vectorizer, features = linear_features(texts, num_labels)
    if num_labels <= MAX_CLASSES and len(np.unique(train_labels)) > 1:
        steps = linear_steps(features.nnz, num_labels)
        name, model = "TF-IDF + logistic regression", LogisticRegression(C=5, max_iter=steps, tol=1e-3)
    else:
        name, model = "TF-IDF + naive Bayes", ComplementNB()
    with warnings.catch_warnings():
        # It need not be the best
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(features, train_labels)
    return name, labels, model.predict(vectorizer.transform(others))


def linear_features(texts: list[str], num_labels: int):
    """Return what makes features of texts, and the features of these, sparse: TF-IDF of characters and pairs
    of characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    most = int(np.clip(MAX_WEIGHTS // num_labels, MIN_FEATURES, MAX_FEATURES))
    vectorizer = TfidfVectorizer(
        analyzer="char", ngram_range=(1, 2), max_features=most, sublinear_tf=True, dtype=np.float32
    )
    return vectorizer, vectorizer.fit_transform(texts)


def linear_steps(num_features: int, num_labels: int) -> int:
    """Return the most iterations of logistic regression, so that its time is bounded; `num_features` of all
    texts together."""
    return int(np.clip(MAX_PRODUCTS // (num_features * num_labels), *ITERATIONS))


def _figures(labels: np.ndarray, predicted: np.ndarray, num_labels: int) -> dict:
    right = np.bincount(labels[labels == predicted], minlength=num_labels)
    sizes = np.bincount(labels, minlength=num_labels) + np.bincount(predicted, minlength=num_labels)
    return {
        "accuracy": float((labels == predicted).mean()),
        "macro_f1": float((2 * right / np.maximum(sizes, 1)).mean()),
        "intervals": {
            name: list(ends) for name, ends in label_intervals(labels, predicted, num_labels).items()
        },
        "rows": len(labels),
    }
