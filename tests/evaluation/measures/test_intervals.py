"""Figures of rows, and how sure they are: python -m pytest tests/evaluation/measures"""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import bootstrap
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from app.evaluation.measures.calibration_error import confidence_bins
from app.evaluation.measures.intervals import calibration_interval, mean_interval
from app.evaluation.measures.row_scores import score_rows


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
    monkeypatch.setattr("app.evaluation.measures.row_scores.CHUNK_NUMBERS", 64)
    labels, logits = random_case(num_rows, num_labels)
    scores = score_rows(labels, logits, temperature)
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
    scores = score_rows(np.array([0, 1]), np.array([[1e4, -1e4], [1e4, -1e4]], np.float32))
    assert scores.loss.tolist() == [0, 2e4]
    assert scores.brier.tolist() == [0, 2]


def test_calibration_bins_are_those_of_sklearn():
    scores = score_rows(*random_case(1004, 4))
    accuracy, confidence = calibration_curve(
        scores.correct, scores.confidence, n_bins=15, strategy="quantile"
    )
    bins = confidence_bins(scores.confidence, scores.correct)
    assert bins.accuracy == pytest.approx(accuracy)
    assert bins.confidence == pytest.approx(confidence)
    assert bins.rows.sum() == 1004
    assert bins.rows.max() - bins.rows.min() <= 1
    assert bins.error == pytest.approx((np.abs(accuracy - confidence) * bins.rows).sum() / 1004)


def test_rows_of_equal_confidence_share_a_bin():
    bins = confidence_bins(np.full(100, 0.7), np.arange(100) < 60)
    assert bins.rows.tolist() == [100]
    assert bins.error == pytest.approx(0.1)


@pytest.mark.parametrize("values", ["exponential", "few values", "one far away"])
def test_interval_of_a_mean_is_that_of_scipy(values):
    generator = np.random.default_rng(2)
    rows = {
        "exponential": generator.exponential(1, 700),
        "few values": generator.integers(0, 3, 700).astype(float),
        "one far away": np.append(generator.normal(0, 1, 699), 300.0),
    }[values]
    expected = bootstrap((rows,), np.mean, method="percentile", n_resamples=5000, rng=1).confidence_interval
    width = expected.high - expected.low
    assert mean_interval(rows, np.random.default_rng(0)) == pytest.approx(expected, abs=0.12 * width)


def test_interval_of_the_calibration_error_is_the_basic_one_of_scipy():
    generator = np.random.default_rng(4)
    confidence = generator.uniform(0.3, 1, 600)
    correct = generator.random(600) < confidence - 0.15
    edges = np.quantile(confidence, np.linspace(0, 1, 16)[1:-1])

    # In bins that stay
    def error(confidence, correct):
        gaps = np.bincount(np.searchsorted(edges, confidence), weights=confidence - correct, minlength=15)
        return np.abs(gaps).sum() / 600

    options = {"method": "basic", "paired": True, "vectorized": False, "n_resamples": 2000, "rng": 1}
    expected = bootstrap((confidence, correct), error, **options).confidence_interval
    found = calibration_interval(confidence, correct, np.random.default_rng(0))
    assert found == pytest.approx(expected, abs=0.012)


def test_error_of_a_calibrated_model_is_far_below_its_noise():
    generator = np.random.default_rng(4)
    confidence = generator.uniform(0.3, 1, 2000)
    correct = generator.random(2000) < confidence
    low, _ = calibration_interval(confidence, correct, np.random.default_rng(0))
    assert low < confidence_bins(confidence, correct).error / 5
