"""What needs no neural network: n-grams of characters and a linear model."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from app.data.cache import content_key, file_digest
from benchmarks.quality import texts
from benchmarks.quality.texts import Rows

# Of the hashed n-grams
BITS = 20


def svm(strength: float, seed: int) -> Any:
    """Return TF-IDF of character 1- to 3-grams and a linear SVM; `strength` is C."""
    from sklearn.svm import LinearSVC

    return _tfidf(LinearSVC(C=strength, random_state=seed))


def logistic(strength: float, seed: int) -> Any:
    """Return the same n-grams and logistic regression; `strength` is C."""
    from sklearn.linear_model import LogisticRegression

    return _tfidf(LogisticRegression(C=strength, max_iter=300, random_state=seed))


def hashed_bag(strength: float, seed: int) -> Any:
    """Return hashed n-grams and a linear model trained by SGD, as fastText has it;
    `strength` is 1 / alpha."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline

    grams = HashingVectorizer(analyzer="char", ngram_range=(1, 3), n_features=1 << BITS)
    return make_pipeline(grams, SGDClassifier(loss="log_loss", alpha=1 / strength, random_state=seed))


def _tfidf(model: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True), model)


# Each baseline, and the strengths of its fit among which the rows to choose on decide.
BASELINES: dict[str, tuple[Callable[[float, int], Any], tuple[float, ...]]] = {
    "ngrams+svm": (svm, (0.03, 0.1, 0.3, 1.0)),
    "ngrams+logistic": (logistic, (1.0, 3.0, 10.0, 30.0)),
    "hashed-bag": (hashed_bag, (1e4, 3e4, 1e5, 3e5)),
}


def program_version() -> str:
    """Return a key of what decides about the results of baselines: their code here, and scikit-learn."""
    sources = (file_digest(Path(path)) for path in (__file__, texts.__file__))
    return content_key(*sources, version("scikit-learn"))


def predict(name: str, rows: dict[str, Rows], has_dev: bool, seed: int) -> tuple[np.ndarray, dict]:
    """Return the class ids that a baseline predicts for the test rows, (num_rows,), and how it was chosen.

    Where the rows to choose on were taken from the training rows, it is trained on both in the end.
    """
    build, strengths = BASELINES[name]
    train, choose = rows["train"], rows["choose"]
    models = {strength: build(strength, seed).fit(train.texts, train.labels) for strength in strengths}
    scores = {strength: float(model.score(choose.texts, choose.labels)) for strength, model in models.items()}
    best = max(scores, key=scores.get)
    model = models[best]
    if not has_dev:
        both = train.texts + choose.texts, np.concatenate([train.labels, choose.labels])
        model = build(best, seed).fit(*both)
    return model.predict(rows["test"].texts), {"strength": best, "accuracy_to_choose": scores[best]}
