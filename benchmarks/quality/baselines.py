"""What needs no neural network: n-grams of characters and a linear model."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from app.data.cache import content_key, file_digest
from benchmarks.quality import texts

BITS = 20  # of the hashed n-grams
# Each baseline, and the strengths of its fit among which the rows to choose on decide
BASELINES = {
    "ngrams+svm": (0.03, 0.1, 0.3, 1.0),
    "ngrams+logistic": (1.0, 3.0, 10.0, 30.0),
    "hashed-bag": (1e4, 3e4, 1e5, 3e5),
}


def build(name: str, strength: float, seed: int) -> Any:
    """Return TF-IDF of character 1- to 3-grams and a linear SVM or a logistic regression, `strength` being C;
    or hashed n-grams and a linear model trained by SGD, as fastText has it, `strength` being 1 / alpha."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    grams = {"analyzer": "char", "ngram_range": (1, 3)}
    if name == "hashed-bag":
        model = SGDClassifier(loss="log_loss", alpha=1 / strength, random_state=seed)
        return make_pipeline(HashingVectorizer(n_features=1 << BITS, **grams), model)
    if name == "ngrams+svm":
        model = LinearSVC(C=strength, random_state=seed)
    else:
        model = LogisticRegression(C=strength, max_iter=300, random_state=seed)
    return make_pipeline(TfidfVectorizer(sublinear_tf=True, **grams), model)


def program_version() -> str:
    """Return a key of what decides about the results of baselines: their code here, and scikit-learn."""
    sources = (file_digest(Path(path)) for path in (__file__, texts.__file__))
    return content_key(*sources, version("scikit-learn"))


def predict(name: str, rows: dict[str, pd.DataFrame], has_dev: bool, seed: int) -> tuple[np.ndarray, dict]:
    """Return the class ids that a baseline predicts for the test rows, (num_rows,), and how it was chosen.

    Where the rows to choose on were taken from the training rows, it is trained on both in the end.
    """
    train, choose = rows["train"], rows["choose"]
    models = {strength: build(name, strength, seed) for strength in BASELINES[name]}
    scores = {
        strength: model.fit(train.text, train.label).score(choose.text, choose.label)
        for strength, model in models.items()
    }
    best = max(scores, key=scores.get)
    if not has_dev:
        both = pd.concat([train, choose])
        models[best].fit(both.text, both.label)
    return models[best].predict(rows["test"].text), {"strength": best}
