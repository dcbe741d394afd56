"""Baselines for one number a row: its mean, and ridge regression on TF-IDF of characters."""

from typing import Any

import numpy as np

from .baselines import MAX_FEATURES, MAX_ROWS, MAX_TRAIN_ROWS, character_tfidf, measured
from .labelled_outcome import LabelledOutcome
from .texts import Texts

# Of ridge regression
STRENGTH = 3.0
# Characters in the pieces that two texts may share
SIZES = (1, 2, 3)


def number_baselines(outcome: LabelledOutcome, train: Texts, report: Texts) -> dict[str, dict]:
    """Return metrics of the mean of the train rows, and of ridge regression, on the rows of the report."""
    mean = np.full(len(report.labels), train.labels.mean())
    name, labels, predicted = ridge_predictions(train, report)
    return {"mean": measured(outcome, report.labels, mean), name: measured(outcome, labels, predicted)}


def ridge_predictions(train: Texts, report: Texts) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the baseline's name, and numbers and predictions, both (num_rows,), of at most `MAX_ROWS` rows.
    For pairs the features are what both texts have in common."""
    from sklearn.linear_model import Ridge

    tfidf = character_tfidf(MAX_FEATURES, np.float64)
    texts, numbers = train.sample(MAX_TRAIN_ROWS)
    tfidf.fit(texts)
    center = numbers.mean()
    model = Ridge(STRENGTH, fit_intercept=False, solver="lsqr")
    model.fit(_features(train, MAX_TRAIN_ROWS, tfidf), numbers - center)
    predicted = center + model.predict(_features(report, MAX_ROWS, tfidf))
    name = "TF-IDF + ridge" if train.read_pairs is None else "shared TF-IDF + ridge"
    return name, report.sample(MAX_ROWS)[1], predicted


def _features(of: Texts, max_rows: int, tfidf: Any) -> Any:
    """Return sparse features, (num_rows, num_features), of at most `max_rows` rows; one is a constant."""
    from scipy.sparse import csr_array, hstack

    if of.read_pairs is None:
        own = tfidf.transform(of.sample(max_rows)[0])
        return hstack([own, csr_array(np.ones((own.shape[0], 1)))]).tocsr()
    firsts, seconds = of.sample_pairs(max_rows)
    one, other = tfidf.transform(firsts), tfidf.transform(seconds)
    cosine = np.asarray(one.multiply(other).sum(axis=1)).reshape(-1, 1)
    dense = np.hstack([np.ones_like(cosine), cosine, _shares(firsts, seconds)])
    return hstack([one.minimum(other), abs(one - other), csr_array(dense)]).tocsr()


def _shares(firsts: list[str], seconds: list[str]) -> np.ndarray:
    """Return which share of the pieces of 1, 2 and 3 characters both texts have, (num_rows, 3)."""

    def pieces(text: str, size: int) -> set[str]:
        return {text[start : start + size] for start in range(len(text) - size + 1)}

    def share(one: str, other: str, size: int) -> float:
        sets = pieces(one, size), pieces(other, size)
        return len(sets[0] & sets[1]) / max(1, len(sets[0] | sets[1]))

    return np.array([[share(*pair, size) for size in SIZES] for pair in zip(firsts, seconds, strict=True)])
