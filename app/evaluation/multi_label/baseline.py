"""What costs nothing, to compare label sets with: the most frequent set, and a linear model of characters for
each label."""

from __future__ import annotations

import warnings

import numpy as np

from ..baseline import MAX_CLASSES, MAX_ROWS, MAX_TRAIN_ROWS, Texts, linear_features, linear_steps
from .decisions import LabelRule, choose_thresholds
from .intervals import FIGURES, SetFigures, alike, label_set_intervals

MOST_FREQUENT = "most frequent set"
LOGISTIC, BAYES = "TF-IDF + logistic regression", "TF-IDF + naive Bayes"


def label_set_baselines(train: Texts, dev: Texts | None, report: Texts, rule: LabelRule) -> dict[str, dict]:
    """Return micro F1, macro F1, samples F1 and subset accuracy, their `intervals` and `rows`, of the
    baselines, by name.

    The linear model has its own thresholds, chosen on dev (0.5 without), and the limits of `rule`. Numbers of
    rows are bounded, and so is the time. The same data give the same figures.
    """
    sets, counts = alike(train.labels)
    most = np.broadcast_to(sets[0][counts.argmax()], report.labels.shape)
    name, labels, predicted = _linear_model(train, dev, report, rule)
    return {MOST_FREQUENT: _figures(report.labels, most), name: _figures(labels, predicted)}


def _linear_model(
    train: Texts, dev: Texts | None, report: Texts, rule: LabelRule
) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the name of the model, and the labels and predictions of rows of the report, (num_rows,
    num_labels)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.naive_bayes import ComplementNB

    (texts, train_labels), (others, labels) = train.sample(MAX_TRAIN_ROWS), report.sample(MAX_ROWS)
    num_labels = train_labels.shape[1]
    vectorizer, features = linear_features(texts, num_labels)
    name, model = BAYES, ComplementNB()
    if num_labels <= MAX_CLASSES:
        steps = linear_steps(features.nnz, num_labels)
        name, model = LOGISTIC, LogisticRegression(C=5, max_iter=steps, tol=1e-3)
    thresholds = rule.thresholds
    with warnings.catch_warnings():
        # It need not be the best; a label that no row of the sample has is 0
        warnings.simplefilter("ignore")
        one_for_each = OneVsRestClassifier(model).fit(features, train_labels)
        if dev is not None:
            dev_texts, dev_labels = dev.sample(MAX_ROWS)
            found = one_for_each.predict_proba(vectorizer.transform(dev_texts))
            thresholds = choose_thresholds(dev_labels, found.astype(np.float64))
        probabilities = one_for_each.predict_proba(vectorizer.transform(others))
    return name, labels, LabelRule(thresholds, rule.min_labels, rule.max_labels).decide(probabilities)


def _figures(labels: np.ndarray, predicted: np.ndarray) -> dict:
    cells, counts = alike(labels, predicted)
    figures = dict(zip(FIGURES, SetFigures(*cells)(counts[None])[:, 0].tolist(), strict=True))
    intervals = {name: list(ends) for name, ends in label_set_intervals(labels, predicted).items()}
    return figures | {"intervals": intervals, "rows": len(labels)}
