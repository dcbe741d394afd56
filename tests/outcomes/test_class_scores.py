"""Scores of rows with one label: python -m pytest tests/outcomes/test_class_scores.py"""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import brier_score_loss, log_loss

from app.outcomes.class_scores import score_classes


def random_case(
    num_rows: int, num_labels: int, seed: int = 0, scale: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, num_labels, num_rows)
    logits = generator.normal(0, scale, (num_rows, num_labels)).astype(np.float32)
    logits[np.arange(num_rows), labels] += 1.5
    return labels, logits


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
@pytest.mark.parametrize(("num_rows", "num_labels"), [(1, 2), (50, 2), (500, 7)])
def test_scores_of_rows_are_those_of_sklearn(num_rows, num_labels, temperature, monkeypatch):
    # Many chunks
    monkeypatch.setattr("app.outcomes.class_scores.CHUNK_NUMBERS", 64)
    labels, logits = random_case(num_rows, num_labels)
    scores = score_classes(labels, logits, temperature)
    expected = softmax(logits.astype(np.float64) / temperature, axis=1)
    ordered = np.sort(expected, axis=1)
    assert (scores.predicted == expected.argmax(axis=1)).all()
    assert scores.confidence == pytest.approx(ordered[:, -1])
    assert scores.margin == pytest.approx(ordered[:, -1] - ordered[:, -2])
    assert scores.loss.mean() == pytest.approx(log_loss(labels, expected, labels=range(num_labels)))
    truth = np.eye(num_labels)[labels]
    assert scores.brier.mean() == pytest.approx(((expected - truth) ** 2).sum(axis=1).mean())
    if num_labels == 2 and num_rows > 1:
        assert scores.brier.mean() == pytest.approx(2 * brier_score_loss(labels, expected[:, 1]))


def test_very_large_logits_give_finite_scores():
    scores = score_classes(np.array([0, 1]), np.array([[1e4, -1e4], [1e4, -1e4]], np.float32))
    assert scores.loss.tolist() == [0, 2e4]
    assert scores.brier.tolist() == [0, 2]
