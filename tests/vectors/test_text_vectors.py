"""Vectors of texts: python -m pytest tests/vectors"""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from app.errors import InputError
from app.prediction.torch_runtime import load_predictor
from app.vectors.text_vectors import TextVectors, nearest, open_vectors
from tests.saved_classifier import random_texts, save_checkpoint


def by_transformers(folder, inputs: list) -> np.ndarray:
    """Return the vectors, of one text or pair at a time, with nothing of ours."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    means = []
    for one in inputs:
        given = (one,) if isinstance(one, str) else one
        with torch.no_grad():
            states = model(**tokenizer(*given, return_tensors="pt", truncation=True, max_length=40))[0]
        means.append(states[0].mean(0))
    return torch.nn.functional.normalize(torch.stack(means)).numpy()


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_vectors_are_the_means_of_the_states_and_are_computed_once(tmp_path, architecture):
    folder = save_checkpoint(tmp_path / "model", architecture)
    vectors = open_vectors(folder, tmp_path, 40)
    texts = random_texts(30)
    done = []
    stored = vectors.stored(texts, tmp_path / "cache", done.append)
    np.testing.assert_allclose(stored, by_transformers(folder, texts), atol=2e-2)
    assert isinstance(stored, np.memmap)
    assert stored.dtype == np.float32
    assert done == [30]
    again = open_vectors(folder, tmp_path, 40).stored(texts, tmp_path / "cache", done.append)
    assert np.array_equal(again, stored)
    assert done == [30]
    # Other texts, or another length, are another folder
    vectors.stored(texts[:5], tmp_path / "cache")
    open_vectors(folder, tmp_path, 20).stored(texts, tmp_path / "cache")
    assert len([*(tmp_path / "cache").glob("vectors-*/vectors.npy")]) == 3


def test_a_loaded_classifier_serves_as_well_and_pairs_are_texts(tmp_path):
    folder = save_checkpoint(tmp_path)
    predictor = load_predictor(folder, 40)
    texts = random_texts(12)
    pairs = [*zip(texts, texts[::-1], strict=True)]
    vectors = TextVectors(predictor.runtime.model, predictor.encoder, precision="fp32")
    np.testing.assert_allclose(vectors.compute(texts), by_transformers(folder, texts), atol=1e-5)
    np.testing.assert_allclose(vectors.compute(pairs), by_transformers(folder, pairs), atol=1e-5)
    assert vectors.stored([], tmp_path).shape == vectors.compute([]).shape == (0, 32)
    with pytest.raises(InputError, match="there is no such folder"):
        open_vectors("no/such/model", tmp_path)


def test_nearest_vectors_come_first():
    vectors = np.eye(4, dtype=np.float32)
    query = np.array([[0.0, 0.6, 0.8, 0.0]], np.float32)
    similarities, rows = nearest(vectors, query, 2)
    assert rows.tolist() == [[2, 1]]
    np.testing.assert_allclose(similarities, [[0.8, 0.6]], atol=1e-6)
    assert nearest(vectors, query, 9)[1].shape == (1, 4)
    assert nearest(vectors[:0], query, 3)[1].shape == (1, 0)
