"""Thresholds of confidence: python -m pytest tests/evaluation/measures/test_selective.py"""

import numpy as np
import pytest
from scipy.stats import binomtest

from app.errors import InputError
from app.evaluation.measures.selective import choose_threshold, lower_bound, risk_coverage
from app.outcomes.class_scores import ClassScores


def calibrated_rows(num_rows: int, seed: int = 0, highest: float = 1) -> tuple[ClassScores, np.ndarray]:
    """Rows that are right as often as their confidence says, and hashes of their texts."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.5, highest, num_rows)
    labels = (generator.random(num_rows) >= confidence).astype(int)
    others = (np.zeros(num_rows),) * 2
    predicted = np.zeros(num_rows, int)
    return ClassScores(labels, predicted, confidence, 2 * confidence - 1, *others), generator.integers(
        0, 1 << 63, num_rows
    )


@pytest.mark.parametrize(("right", "decided"), [(0, 0), (0, 9), (1, 1), (95, 100), (100, 100), (4000, 4100)])
def test_bound_is_that_of_scipy(right, decided):
    expected = (
        binomtest(right, decided, alternative="greater").proportion_ci(0.95, "exact").low if decided else 0
    )
    assert lower_bound(right, decided) == pytest.approx(expected, abs=1e-9)


def test_curve_ends_with_all_rows_and_all_errors():
    scores, _ = calibrated_rows(500)
    confidence, coverage, risk = risk_coverage(scores)
    assert (np.diff(confidence) < 0).all()
    assert (np.diff(coverage) > 0).all()
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(1 - scores.correct.mean())
    at = 200
    assert risk[at] == pytest.approx(1 - scores.correct[scores.confidence >= confidence[at]].mean())


def test_rows_of_equal_confidence_are_decided_together():
    scores, _ = calibrated_rows(500)
    rounded = ClassScores(scores.labels, scores.predicted, scores.confidence.round(1), *([scores.margin] * 3))
    assert len(risk_coverage(rounded)[0]) == 6


def test_bound_holds_on_new_rows_19_times_in_20():
    held, found = 0, []
    for seed in range(60):
        scores, hashes = calibrated_rows(1000, seed)
        threshold = choose_threshold(scores, hashes, 0.9)
        # The mean of the confidences above it
        true_precision = (threshold.value + 1) / 2
        held += threshold.bound <= true_precision
        found.append(true_precision)
        assert 0 < threshold.right <= threshold.decided <= threshold.rows < 1000
    assert held >= 52
    assert np.mean(found) == pytest.approx(0.9, abs=0.02)


def test_the_half_that_chooses_is_not_the_half_that_measures():
    scores, hashes = calibrated_rows(400)
    threshold = choose_threshold(scores, hashes, 0.9)
    other = hashes % 2 == 1
    decided = other & (scores.confidence >= threshold.value)
    assert (threshold.rows, threshold.decided) == (other.sum(), decided.sum())
    assert threshold.right == scores.correct[decided].sum()
    assert f"{threshold.bound:.4f} with 95 % confidence" in threshold.describe(0.9)


def test_precision_that_cannot_be_reached_is_an_error_with_the_best():
    scores, hashes = calibrated_rows(400, highest=0.8)
    with pytest.raises(
        InputError, match=r"precision=0.9999 cannot be reached .* the best is 0\.\d{4}; ask for less"
    ):
        choose_threshold(scores, hashes, 0.9999)
    few, hashes = calibrated_rows(22)
    with pytest.raises(InputError, match="too few rows"):
        choose_threshold(few, hashes, 0.5)
    with pytest.raises(InputError, match="found 1"):
        choose_threshold(*calibrated_rows(1), 0.5)
