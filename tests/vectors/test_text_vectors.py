"""Vectors of texts: python -m pytest tests/vectors"""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from app.prediction.torch_runtime import load_predictor
from app.vectors.text_vectors import TextVectors, nearest
from tests.saved_classifier import random_texts, save_checkpoint

TEXTS = random_texts(30)


def vectors_of(folder, max_length: int = 40) -> TextVectors:
    predictor = load_predictor(folder, max_length)
    return TextVectors(predictor.runtime.model, predictor.encoder)


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_vectors_are_the_means_of_the_states_of_texts_and_pairs(tmp_path, architecture):
    """By transformers, one text or pair at a time, with nothing of ours."""
    folder = save_checkpoint(tmp_path / "model", architecture)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    for texts in (TEXTS, [*zip(TEXTS, TEXTS[::-1], strict=True)]):
        means = []
        for one in texts:
            given = (one,) if isinstance(one, str) else one
            with torch.no_grad():
                states = model(**tokenizer(*given, return_tensors="pt", truncation=True, max_length=40))[0]
            means.append(states[0].mean(0))
        expected = torch.nn.functional.normalize(torch.stack(means)).numpy()
        np.testing.assert_allclose(vectors_of(folder).compute(texts), expected, atol=1e-5)


def test_vectors_are_computed_once_for_texts_and_length(tmp_path):
    folder, cache = save_checkpoint(tmp_path / "model"), tmp_path / "cache"
    stored = vectors_of(folder).stored(TEXTS, cache)
    assert isinstance(stored, np.memmap)
    assert np.array_equal(stored, vectors_of(folder).compute(TEXTS))
    [path] = cache.glob("vectors-*/vectors.npy")
    written = path.stat().st_mtime_ns
    assert np.array_equal(vectors_of(folder).stored(TEXTS, cache), stored)
    assert path.stat().st_mtime_ns == written
    vectors_of(folder).stored(TEXTS[:5], cache)
    vectors_of(folder, 20).stored(TEXTS, cache)
    assert len([*cache.glob("vectors-*/vectors.npy")]) == 3
    assert vectors_of(folder).stored([], cache).shape == (0, 32)


def test_nearest_vectors_come_first():
    vectors = np.eye(4, dtype=np.float32)
    query = np.array([[0.0, 0.6, 0.8, 0.0]], np.float32)
    similarities, rows = nearest(vectors, query, 2)
    assert rows.tolist() == [[2, 1]]
    np.testing.assert_allclose(similarities, [[0.8, 0.6]], atol=1e-6)
    assert nearest(vectors, query, 9)[1].shape == (1, 4)
    assert nearest(vectors[:0], query, 3)[1].shape == (1, 0)
