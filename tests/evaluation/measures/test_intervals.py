"""Figures of rows, and how sure they are: python -m pytest tests/evaluation/measures"""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import bootstrap
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, f1_score, log_loss

from app.evaluation.measures import intervals
from app.evaluation.measures.calibration_error import confidence_bins
from app.evaluation.measures.intervals import (
    calibration_interval,
    label_intervals,
    mean_interval,
    score_intervals,
)
from app.evaluation.measures.row_scores import score_rows
from app.evaluation.measures.summary import render_summary, summarize


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


def test_intervals_of_accuracy_and_macro_f1_are_those_of_scipy():
    labels, logits = random_case(400, 3)
    scores = score_rows(labels, logits)
    found = score_intervals(scores, 3)

    def macro_f1(true, predicted):
        return f1_score(true, predicted, labels=range(3), average="macro", zero_division=0)

    options = {"method": "percentile", "paired": True, "vectorized": False, "rng": 1}
    expected = bootstrap((labels, scores.predicted), macro_f1, n_resamples=600, **options).confidence_interval
    assert found["macro_f1"] == pytest.approx(expected, abs=0.01)
    expected = bootstrap(
        (scores.correct,), np.mean, method="percentile", n_resamples=5000, rng=1
    ).confidence_interval
    assert found["accuracy"] == pytest.approx(expected, abs=0.005)


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


def test_intervals_hold_the_true_accuracy_19_times_in_20():
    held = 0
    for seed in range(200):
        labels, logits = random_case(300, 2, seed)
        low, high = score_intervals(score_rows(labels, logits), 2, seed)["accuracy"]
        held += low <= TRUE_ACCURACY <= high
    assert 180 <= held <= 199


# Of two logits with a difference of 1.5 and a standard deviation of 2 * sqrt(2)
TRUE_ACCURACY = 0.7021


def test_blocks_of_resamples_change_no_interval(monkeypatch):
    scores = score_rows(*random_case(300, 5))
    whole = score_intervals(scores, 5)
    monkeypatch.setattr(intervals, "BLOCK_DRAWS", 1000)
    for name, interval in score_intervals(scores, 5).items():
        assert interval == pytest.approx(whole[name]), name


def test_summary_names_every_figure_and_its_interval():
    labels, logits = random_case(300, 3)
    scores = score_rows(labels, logits)
    summary = summarize(scores, 3) | {"accuracy": 0.7, "macro_f1": 0.6, "loss": 0.5}
    text = render_summary(summary)
    for name, (low, high) in summary["intervals"].items():
        assert low <= high
        assert f"{summary[name]:.4f}   {low:.4f} to {high:.4f}" in text


def test_one_row_and_rows_that_are_all_right_have_intervals():
    for num_rows in (1, 20):
        logits = np.tile(np.array([[5, 0]], np.float32), (num_rows, 1))
        summary = summarize(score_rows(np.zeros(num_rows, int), logits), 2)
        assert summary["intervals"]["accuracy"] == [1.0, 1.0]
        assert summary["intervals"]["loss"][0] == pytest.approx(0.0067153, rel=1e-4)


@pytest.mark.parametrize("rows_per_class", [1, 2, 5])
@pytest.mark.parametrize("right", [0.2, 0.5, 0.9])
def test_macro_f1_of_very_many_classes_of_few_rows_is_in_its_interval(rows_per_class, right):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(1500), rows_per_class)
    predicted = np.where(
        generator.random(len(labels)) < right, labels, generator.integers(0, 1500, len(labels))
    )
    low, high = label_intervals(labels, predicted, 1600)["macro_f1"]
    figure = f1_score(labels, predicted, average="macro", labels=range(1600), zero_division=0)
    assert low < figure < high
    assert high - low < 0.1
