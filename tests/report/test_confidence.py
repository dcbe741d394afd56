"""How sure and how right decisions are: python -m pytest tests/report/test_confidence.py"""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from app.errors import InputError
from app.report.confidence import calibration_error, choose_threshold, confidence_bins, risk_coverage


def calibrated_rows(num_rows: int, seed: int = 0, highest: float = 1) -> tuple[np.ndarray, ...]:
    """Return how sure and how right rows are, right as often as they say, and hashes of their texts."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.5, highest, num_rows)
    correct = generator.random(num_rows) < confidence
    return confidence, correct, generator.integers(0, 1 << 63, num_rows)


def test_calibration_bins_are_those_of_sklearn():
    sure, correct, _ = calibrated_rows(1004)
    accuracy, confidence = calibration_curve(correct, sure, n_bins=15, strategy="quantile")
    rows, means, shares = confidence_bins(sure, correct)
    assert shares == pytest.approx(accuracy)
    assert means == pytest.approx(confidence)
    assert rows.sum() == 1004
    assert rows.max() - rows.min() <= 1
    expected = (np.abs(accuracy - confidence) * rows).sum() / 1004
    assert calibration_error(sure, correct) == pytest.approx(expected)


def test_rows_of_equal_confidence_share_a_bin_and_are_decided_together():
    (found,) = confidence_bins(np.full(100, 0.7), np.arange(100) < 60).T
    assert found == pytest.approx([100, 0.7, 0.6])
    confidence, correct, _ = calibrated_rows(500)
    assert len(risk_coverage(confidence.round(1), correct)[0]) == 6


def test_curve_ends_with_all_rows_and_all_errors():
    sure, correct, _ = calibrated_rows(500)
    confidence, coverage, risk = risk_coverage(sure, correct)
    assert (np.diff(confidence) < 0).all()
    assert (np.diff(coverage) > 0).all()
    assert (coverage[-1], risk[-1]) == (1, pytest.approx(1 - correct.mean()))
    assert risk[200] == pytest.approx(1 - correct[sure >= confidence[200]].mean())


def test_bound_holds_on_new_rows_19_times_in_20():
    found = np.array([choose_threshold(*calibrated_rows(1000, seed), 0.9)[:2] for seed in range(60)])
    # The mean of the confidences above the threshold
    true_precision = (found[:, 0] + 1) / 2
    assert (found[:, 1] <= true_precision).sum() >= 52
    assert true_precision.mean() == pytest.approx(0.9, abs=0.02)


def test_the_half_that_chooses_is_not_the_half_that_measures():
    confidence, correct, hashes = calibrated_rows(400)
    value, bound, said = choose_threshold(confidence, correct, hashes, 0.9)
    other = hashes % 2 == 1
    decided = other & (confidence >= value)
    assert f"on the {other.sum()} rows of the other half it decides {decided.sum()} (" in said
    assert f"precision {correct[decided].mean():.4f}, at least {bound:.4f} with 95 % confidence" in said


@pytest.mark.parametrize(
    ("rows", "precision", "message"),
    [
        ((400, 0, 0.8), 0.9999, r"precision=0.9999 cannot be reached .* the best is 0\.\d{4}; ask for less"),
        ((22,), 0.5, "too few rows"),
        ((1,), 0.5, "found 1"),
    ],
)
def test_precision_that_cannot_be_reached_is_an_error_with_the_best(rows, precision, message):
    with pytest.raises(InputError, match=message):
        choose_threshold(*calibrated_rows(*rows), precision)
