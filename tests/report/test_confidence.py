"""How sure and how right decisions are: python -m pytest tests/report/test_confidence.py"""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from app.errors import InputError
from app.report.confidence import choose_threshold, confidence_bins, risk_coverage
from app.tasks import open_task
from tests.report.rows_case import random_rows


def test_calibration_bins_are_those_of_sklearn():
    scores = open_task("single_label", list("甲乙丙丁")).score(*random_rows("single_label", 1004, 4))
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


def calibrated_rows(num_rows: int, seed: int = 0, highest: float = 1) -> tuple[np.ndarray, ...]:
    """Return how sure and how right rows are, right as often as they say, and hashes of their texts."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.5, highest, num_rows)
    correct = generator.random(num_rows) < confidence
    return confidence, correct, generator.integers(0, 1 << 63, num_rows)


def test_curve_ends_with_all_rows_and_all_errors():
    sure, correct, _ = calibrated_rows(500)
    confidence, coverage, risk = risk_coverage(sure, correct)
    assert (np.diff(confidence) < 0).all()
    assert (np.diff(coverage) > 0).all()
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(1 - correct.mean())
    at = 200
    assert risk[at] == pytest.approx(1 - correct[sure >= confidence[at]].mean())


def test_rows_of_equal_confidence_are_decided_together():
    confidence, correct, _ = calibrated_rows(500)
    assert len(risk_coverage(confidence.round(1), correct)[0]) == 6


def test_bound_holds_on_new_rows_19_times_in_20():
    held, found = 0, []
    for seed in range(60):
        threshold = choose_threshold(*calibrated_rows(1000, seed), 0.9)
        # The mean of the confidences above it
        true_precision = (threshold.value + 1) / 2
        held += threshold.bound <= true_precision
        found.append(true_precision)
        assert 0 < threshold.right <= threshold.decided <= threshold.rows < 1000
    assert held >= 52
    assert np.mean(found) == pytest.approx(0.9, abs=0.02)


def test_the_half_that_chooses_is_not_the_half_that_measures():
    confidence, correct, hashes = calibrated_rows(400)
    threshold = choose_threshold(confidence, correct, hashes, 0.9)
    other = hashes % 2 == 1
    decided = other & (confidence >= threshold.value)
    assert (threshold.rows, threshold.decided) == (other.sum(), decided.sum())
    assert threshold.right == correct[decided].sum()
    assert f"{threshold.bound:.4f} with 95 % confidence" in threshold.describe(0.9)


def test_precision_that_cannot_be_reached_is_an_error_with_the_best():
    with pytest.raises(
        InputError, match=r"precision=0.9999 cannot be reached .* the best is 0\.\d{4}; ask for less"
    ):
        choose_threshold(*calibrated_rows(400, highest=0.8), 0.9999)
    with pytest.raises(InputError, match="too few rows"):
        choose_threshold(*calibrated_rows(22), 0.5)
    with pytest.raises(InputError, match="found 1"):
        choose_threshold(*calibrated_rows(1), 0.5)
