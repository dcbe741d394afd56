"""Vectors of texts: python -m pytest tests/vectors"""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from app.prediction.torch_runtime import load_predictor
from app.vectors.text_vectors import text_vectors
from tests.saved_classifier import random_texts, save_checkpoint

TEXTS = random_texts(30)


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
        predictor = load_predictor(folder, 40)
        found = text_vectors(predictor.runtime.model, predictor.encoder, texts)
        np.testing.assert_allclose(found, expected, atol=1e-5)
