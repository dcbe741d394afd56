"""The linear model of character n-grams answers as scikit-learn's own pipeline does."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import make_pipeline

from app.ngrams.character_model import MAX_CHARACTERS
from app.ngrams.fit import LOGISTIC_REGRESSION, NAIVE_BAYES, RIDGE, fit_characters

WORDS = ["今天", "真开心", "难过", "电影", "好看", "生气", "下雨", "快递", "晚点", "喜欢"]


@pytest.fixture(scope="module")
def texts():
    generator = np.random.default_rng(0)
    return ["".join(generator.choice(WORDS, 5)) for _ in range(300)]


def tfidf(**settings):
    return TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True, **settings)


@pytest.mark.parametrize("num_labels", [2, 3])
def test_one_label(texts, num_labels):
    labels = np.array([WORDS.index(text[:2]) if text[:2] in WORDS else 1 for text in texts]) % num_labels
    model = fit_characters(texts, labels, num_labels)
    pipeline = make_pipeline(tfidf(dtype=np.float32), LogisticRegression(C=5, max_iter=100, tol=1e-3))
    pipeline.fit(texts, labels)
    outputs = model.outputs(texts)
    odds = np.exp(outputs)
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    assert model.method == LOGISTIC_REGRESSION
    assert np.allclose(probabilities, pipeline.predict_proba(texts), atol=1e-5)


def test_a_class_without_rows_is_never_the_answer(texts):
    labels = np.arange(len(texts)) % 3 * 2
    model = fit_characters(texts, labels, num_labels=6)
    answers = model.outputs(["从未见过的字", *texts]).argmax(axis=1)
    assert set(answers) <= {0, 2, 4}


def test_more_than_fifty_classes_have_naive_bayes(texts):
    labels = np.arange(len(texts)) % 60
    model = fit_characters(texts, labels, num_labels=60)
    pipeline = make_pipeline(tfidf(dtype=np.float32), ComplementNB()).fit(texts, labels)
    assert model.method == NAIVE_BAYES
    assert np.array_equal(model.outputs(texts).argmax(axis=1), pipeline.predict(texts))


def test_rows_of_one_class(texts):
    model = fit_characters(texts, np.full(len(texts), 1), num_labels=2)
    assert set(model.outputs(texts).argmax(axis=1)) == {1}


@pytest.mark.filterwarnings("ignore:Label")
def test_several_labels(texts):
    labels = np.array([[word in text for word in WORDS] for text in texts], dtype=np.int64)
    # No row has the first label, and all rows have the last one
    labels[:, 0] = 0
    labels[:, -1] = 1
    model = fit_characters(texts, labels, len(WORDS))
    regression = LogisticRegression(C=30, solver="liblinear", max_iter=30, tol=1e-2, random_state=0)
    pipeline = make_pipeline(tfidf(dtype=np.float32), OneVsRestClassifier(regression)).fit(texts, labels)
    probabilities = 1 / (1 + np.exp(-model.outputs(texts)))
    assert model.method == LOGISTIC_REGRESSION
    assert np.allclose(probabilities, pipeline.predict_proba(texts), atol=1e-5)


def test_numbers(texts):
    numbers = np.array([len(set(text)) / 3 for text in texts])
    model = fit_characters(texts, numbers, num_labels=1)
    predicted = model.outputs(texts)[:, 0]
    assert model.method == RIDGE
    assert np.corrcoef(predicted, numbers)[0, 1] > 0.8
    pipeline = make_pipeline(tfidf(), Ridge(3.0)).fit(texts, numbers)
    # Our mean is a little penalised too
    assert np.abs(predicted - pipeline.predict(texts)).max() < 0.05


def test_equal_rows_give_equal_models_and_long_texts_are_cut(texts):
    labels = np.arange(len(texts)) % 2
    long_texts = [text * 100 for text in texts]
    model = fit_characters(long_texts, labels, num_labels=2)
    again = fit_characters([text[:MAX_CHARACTERS] for text in long_texts], labels, num_labels=2)
    assert model.ngrams == again.ngrams
    assert np.array_equal(model.weights, again.weights)
    assert np.array_equal(model.outputs(long_texts[:9]), again.outputs(long_texts[:9]))


def one_hot(labels: np.ndarray, num_labels: int) -> np.ndarray:
    return np.eye(num_labels, dtype=np.float32)[labels]


def test_a_row_with_a_distribution_counts_for_each_label_by_its_share(texts):
    """Shares of one half are two rows with one label each, which count half."""
    labels = np.arange(len(texts)) % 3
    hard = fit_characters(texts, labels, 3)
    same = fit_characters(texts, labels, 3, targets=one_hot(labels, 3))
    assert np.allclose(same.outputs(texts), hard.outputs(texts), atol=1e-4)
    others = (labels + 1) % 3
    halves = (one_hot(labels, 3) + one_hot(others, 3)) / 2
    soft = fit_characters(texts, labels, 3, targets=halves)
    vectorizer = tfidf(dtype=np.float32)
    features = vectorizer.fit_transform(texts)
    twice = features[np.tile(np.arange(len(texts)), 2)]
    regression = LogisticRegression(C=5, max_iter=100, tol=1e-3)
    regression.fit(twice, np.concatenate([labels, others]), sample_weight=np.full(2 * len(texts), 0.5))
    odds = np.exp(soft.outputs(texts))
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    assert np.allclose(probabilities, regression.predict_proba(features), atol=1e-3)


def test_probabilities_of_several_labels_are_weights_too(texts):
    labels = np.stack([np.arange(len(texts)) % 2, np.arange(len(texts)) % 3 == 0], axis=1).astype(np.uint8)
    hard = fit_characters(texts, labels, 2)
    same = fit_characters(texts, labels, 2, targets=labels.astype(np.float32))
    assert np.allclose(same.outputs(texts), hard.outputs(texts), atol=1e-3)
    unsure = fit_characters(texts, labels, 2, targets=0.2 + 0.6 * labels.astype(np.float32))
    assert np.abs(unsure.outputs(texts)).mean() < np.abs(hard.outputs(texts)).mean()


def test_a_model_that_is_followed_by_a_linear_function(texts):
    model = fit_characters(texts, np.arange(len(texts)) % 3, num_labels=3)

    def mixed(outputs: np.ndarray) -> np.ndarray:
        return outputs[:, ::-1] * 2 - outputs[:, :1] + 7

    assert np.allclose(model.followed_by(mixed).outputs(texts), mixed(model.outputs(texts)), atol=1e-4)
