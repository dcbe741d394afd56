"""Figures of rows, and how sure they are: python -m pytest tests/evaluation/measures"""

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.calibration import calibration_curve

from app.evaluation.measures.calibration_error import confidence_bins
from app.evaluation.measures.intervals import calibration_interval, mean_interval
from app.outcomes.class_scores import score_classes
from tests.outcomes.rows_case import random_rows


def test_calibration_bins_are_those_of_sklearn():
    scores = score_classes(*random_rows("single_label", 1004, 4))
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
