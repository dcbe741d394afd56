"""Baselines: the most frequent answer, and TF-IDF of characters with a linear model."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .labelled_outcome import LabelledOutcome
from .resampling import answer_intervals, answer_values
from .texts import Texts
from .thresholds import LabelRule, choose_thresholds, default_rule

LOGISTIC_REGRESSION = "TF-IDF + logistic regression"
MAX_TRAIN_ROWS = MAX_ROWS = 20_000
MAX_FEATURES, MIN_FEATURES = 50_000, 2_000
# Features x classes; naive Bayes has several tables of that size
MAX_WEIGHTS = 5_000_000
# Of logistic regression; beyond them its time grows with their number
MAX_CLASSES = 50
# Of all its iterations
MAX_PRODUCTS = 600_000_000
ITERATIONS = (15, 100)
# Of one logistic regression a label, for several labels a row; more labels have naive Bayes
MAX_LABELS = 500
# Labels x values that are not 0 in the features; with more, every second, third ... row is trained on.
# 60 million take 9 seconds on one core.
MAX_LABELS_X_VALUES = 100_000_000


def character_tfidf(max_features: int, dtype: type) -> Any:
    """Return what makes features of texts: TF-IDF of characters and pairs of characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        analyzer="char", ngram_range=(1, 2), max_features=max_features, sublinear_tf=True, dtype=dtype
    )


class LinearModel:
    """TF-IDF of characters and pairs of characters, with logistic regression or, of many labels, naive Bayes.

    Numbers of rows are bounded, and so is the time: about 15 seconds at most. The same data give the same
    model. `wrap` makes a classifier of several labels a row of one of one label.
    """

    def __init__(
        self, train: Texts, num_labels: int, wrap: Callable[[Any], Any] = lambda model: model
    ) -> None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.naive_bayes import ComplementNB

        texts, labels = train.sample(MAX_TRAIN_ROWS)
        max_features = int(np.clip(MAX_WEIGHTS // num_labels, MIN_FEATURES, MAX_FEATURES))
        self.vectorizer = character_tfidf(max_features, np.float32)
        features = self.vectorizer.fit_transform(texts)
        self.name, model = "TF-IDF + naive Bayes", ComplementNB()
        if labels.ndim == 2 and num_labels <= MAX_LABELS:
            self.name = LOGISTIC_REGRESSION
            step = -(-features.nnz * num_labels // MAX_LABELS_X_VALUES)
            features, labels = features[::step], labels[::step]
            model = LogisticRegression(C=30, solver="liblinear", max_iter=30, tol=1e-2, random_state=0)
        elif num_labels <= MAX_CLASSES and len(np.unique(labels)) > 1:
            iterations = int(np.clip(MAX_PRODUCTS // (features.nnz * num_labels), *ITERATIONS))
            self.name = LOGISTIC_REGRESSION
            model = LogisticRegression(C=5, max_iter=iterations, tol=1e-3)
        with warnings.catch_warnings():
            # The model need not be the best, and a label may have no row in the sample
            warnings.simplefilter("ignore")
            self.model = wrap(model).fit(features, labels)

    def predict(self, rows: Texts) -> tuple[np.ndarray, np.ndarray]:
        """Return labels and predictions of at most `MAX_ROWS` rows."""
        texts, labels = rows.sample(MAX_ROWS)
        return labels, self.model.predict(self.vectorizer.transform(texts))

    def probabilities(self, rows: Texts) -> tuple[np.ndarray, np.ndarray]:
        """Return labels and probabilities, (num_rows, num_labels) float64, of at most `MAX_ROWS` rows."""
        texts, labels = rows.sample(MAX_ROWS)
        return labels, self.model.predict_proba(self.vectorizer.transform(texts)).astype(np.float64)


def measured(outcome: LabelledOutcome, labels: np.ndarray, predicted: np.ndarray) -> dict:
    """Return the metrics of predictions without probabilities, their `intervals`, and `rows`."""
    ends = {key: list(interval) for key, interval in answer_intervals(outcome, labels, predicted).items()}
    return answer_values(outcome, labels, predicted) | {"intervals": ends, "rows": len(labels)}


def multi_label_baselines(
    outcome: LabelledOutcome, train: Texts, dev: Texts | None, report: Texts
) -> dict[str, dict]:
    """Return the baselines of several labels a row. The linear model has its own thresholds, chosen on dev
    (0.5 without)."""
    from sklearn.multiclass import OneVsRestClassifier

    (answers,), counts = outcome.distinct_rows(train.labels)
    frequent = np.broadcast_to(answers[counts.argmax()], report.labels.shape)
    linear = LinearModel(train, len(outcome.label_names), OneVsRestClassifier)
    rule = default_rule(len(outcome.label_names))
    if dev is not None:
        rule = LabelRule(choose_thresholds(*linear.probabilities(dev)))
    labels, chances = linear.probabilities(report)
    return {
        "most frequent set": measured(outcome, report.labels, frequent),
        linear.name: measured(outcome, labels, rule.decide(chances)),
    }
