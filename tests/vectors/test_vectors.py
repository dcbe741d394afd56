"""Vectors of texts: what the last layer reads, computed once; and the linear head on them."""

import sqlite3

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from app.errors import InputError, TrainingError
from app.model.linear_start import C
from app.model.model_parts import last_layer
from app.prediction.open_model import ComputeOptions, open_model
from app.vectors.encoder import open_encoder
from app.vectors.head import centre_and_scale, fit_head, scaled
from app.vectors.store import VectorStore
from tests.saved_classifier import as_rows, random_texts

TEXTS = [(text,) for text in random_texts(40)]


@pytest.fixture(scope="module")
def encoder(checkpoint):
    return open_encoder(checkpoint=checkpoint, device="cpu")


def rows_stored(store: VectorStore) -> int:
    with sqlite3.connect(store.path) as database:
        return database.execute("SELECT COUNT(*) FROM vectors").fetchone()[0]


def test_vectors_are_what_the_last_layer_reads(encoder, checkpoint):
    vectors = encoder.vectors(TEXTS)
    predictor = open_model(checkpoint, ComputeOptions("cpu")).predictor
    logits = predictor.logits(predictor.tokenize(as_rows([text for [text] in TEXTS])))
    _name, layer = last_layer(encoder.predictor.runtime.model.model)
    with torch.no_grad():
        expected = layer(torch.from_numpy(vectors)).numpy()
    np.testing.assert_allclose(expected, logits, rtol=1e-4, atol=1e-4)


def test_a_model_that_is_no_run_reads_long_texts_in_windows(checkpoint, tmp_path):
    encoder = open_encoder(str(checkpoint), cache_dir=str(tmp_path), device="cpu")
    texts = [("好" * 300,), ("好" * 10,)]
    tokens = encoder.predictor.tokenize(as_rows([text for [text] in texts]))
    assert tokens.counts[0] > 1
    assert tokens.counts[1] == 1
    assert encoder.vectors(texts).shape == (2, 32)


def test_a_text_is_computed_once(encoder, tmp_path):
    store = VectorStore(encoder, str(tmp_path))
    first = store.vectors(TEXTS[:30])
    assert first.dtype == np.float16
    np.testing.assert_allclose(first, encoder.vectors(TEXTS[:30]), rtol=2e-3, atol=2e-3)
    assert rows_stored(store) == 30
    # What is stored comes back, in the order of the texts; only what is new is computed
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE vectors SET vector = zeroblob(length(vector))")
    again = store.vectors(TEXTS[::-1])
    assert not again[10:].any()
    assert again[:10].any(axis=1).all()
    assert rows_stored(store) == 40


def test_a_computation_that_is_stopped_keeps_what_it_has(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("app.vectors.store.CHUNK_TEXTS", 10)
    store = VectorStore(encoder, str(tmp_path))
    chunks = store.chunks(TEXTS, should_stop=lambda: rows_stored(store) >= 20)
    assert [len(places) for places, _vectors in chunks] == [10, 10]
    assert rows_stored(store) == 20
    assert [len(places) for places, _vectors in store.chunks(TEXTS)] == [20, 10, 10]


def test_another_encoder_has_another_file(encoder, checkpoint, tmp_path):
    other_encoder = open_encoder(str(checkpoint), cache_dir=str(tmp_path), device="cpu")
    assert VectorStore(other_encoder, "x").path != VectorStore(encoder, "x").path


def test_a_damaged_file_is_named(encoder, tmp_path):
    store = VectorStore(encoder, str(tmp_path))
    store.path.write_bytes(b"no database at all" * 100)
    with pytest.raises(InputError, match="remove it"):
        store.vectors(TEXTS)


def test_a_cache_that_is_a_file_is_named(encoder, tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(TrainingError, match="cannot be used"):
        VectorStore(encoder, str(tmp_path / "cache")).vectors(TEXTS)


def test_random_weights_are_no_encoder():
    with pytest.raises(InputError, match="found model random"):
        open_encoder("random")


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(0.3, 1, (60, 5)).astype(np.float16)


def test_the_head_is_the_regression_of_scikit_learn(vectors):
    labels = np.arange(60) % 3
    targets = np.eye(3)[labels]
    centre, scale = centre_and_scale(vectors)
    head = fit_head(vectors, targets, centre, scale, has_several=False)
    reference = LogisticRegression(C=C, tol=1e-8, max_iter=1000).fit(scaled(vectors, centre, scale), labels)
    expected = reference.predict_proba(scaled(vectors, centre, scale))
    np.testing.assert_allclose(head.probabilities(vectors), expected, atol=5e-3)


def test_with_several_labels_each_has_a_regression(vectors):
    targets = np.random.default_rng(1).random((60, 4)) < 0.4
    targets[:, 3] = False
    centre, scale = centre_and_scale(vectors)
    head = fit_head(vectors, targets, centre, scale, has_several=True)
    for label in range(3):
        reference = LogisticRegression(C=C, tol=1e-8, max_iter=1000)
        reference.fit(scaled(vectors, centre, scale), targets[:, label])
        expected = reference.predict_proba(scaled(vectors, centre, scale))[:, 1]
        np.testing.assert_allclose(head.probabilities(vectors)[:, label], expected, atol=5e-3)
    assert (head.probabilities(vectors)[:, 3] < 1e-6).all()


def test_a_head_goes_on_from_the_last_one_with_a_new_label(vectors):
    centre, scale = centre_and_scale(vectors)
    labels = np.arange(60) % 2
    first = fit_head(vectors, np.eye(2)[labels], centre, scale, has_several=False)
    labels[:10] = 2
    warm = fit_head(vectors, np.eye(3)[labels], centre, scale, has_several=False, start=first)
    cold = fit_head(vectors, np.eye(3)[labels], centre, scale, has_several=False)
    np.testing.assert_allclose(warm.probabilities(vectors), cold.probabilities(vectors), atol=5e-3)
