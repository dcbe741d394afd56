"""What a teacher's labels add to the accuracy of a model, and thresholds that surely have a precision."""

import numpy as np
import pytest
from scipy.stats import binomtest

from app.report.confidence import lowest_confidence, proportion_interval
from app.report.teacher import (
    NO_LABEL,
    TaughtRows,
    certain_threshold,
    powered_accuracy,
    share_interval,
    sure_rows,
    teacher_metrics,
)

RESAMPLES = 200


def drawn_answers(
    generator: np.random.Generator,
    num_rows: int,
    num_labels: int = 4,
    right: float = 0.85,
    teacher: float = 0.9,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, answers of a model and labels of a teacher, (num_rows,) each; a wrong one is any."""

    def changed(labels: np.ndarray, share_right: float) -> np.ndarray:
        others = (labels + generator.integers(1, num_labels, num_rows)) % num_labels
        return np.where(generator.random(num_rows) < share_right, labels, others)

    labels = generator.integers(0, num_labels, num_rows)
    return labels, changed(labels, right), changed(labels, teacher)


def test_the_interval_of_a_share_is_wilsons():
    for right, rows in ((0, 5), (45, 50), (7, 9)):
        expected = binomtest(right, rows).proportion_ci(method="wilson")
        assert share_interval(right / rows, rows) == pytest.approx((expected.low, expected.high))


def test_powered_accuracy_is_the_published_formula():
    labels, answers, teacher = drawn_answers(np.random.default_rng(1), 1300)
    correct = (answers == labels)[:300]
    agrees = answers == teacher
    powered = powered_accuracy(correct, agrees[:300], agrees[300:])
    weight = np.cov(correct, agrees[:300])[0, 1] / ((1 + 300 / 1000) * agrees.var())
    assert powered.weight == pytest.approx(weight)
    assert 0.4 < weight < 1
    rectifier = (correct - weight * agrees[:300]).mean()
    assert powered.accuracy == pytest.approx(weight * agrees[300:].mean() + rectifier)
    # The interval is that of as many rows as would have its variance
    variance = (correct - weight * agrees[:300]).var() / 300 + weight**2 * agrees[300:].var() / 1000
    num_rows = correct.var() / variance
    assert num_rows > 300 * 1.4
    assert powered.interval == pytest.approx(share_interval(powered.accuracy, num_rows))


@pytest.mark.parametrize(("num_labels", "right"), [(2, 0.85), (2, 0.8), (6, 0.9)])
def test_the_interval_with_a_teacher_of_090_covers_and_is_a_fifth_narrower(num_labels, right):
    generator = np.random.default_rng(0)
    num_covering = 0
    widths = []
    for _resample in range(RESAMPLES):
        labels, answers, teacher = drawn_answers(generator, 3200, num_labels, right)
        correct = answers == labels
        agrees = answers == teacher
        low, high = powered_accuracy(correct[:200], agrees[:200], agrees[200:]).interval
        plain_low, plain_high = share_interval(correct[:200].mean(), 200)
        num_covering += low <= right <= high
        widths.append((high - low) / (plain_high - plain_low))
    assert num_covering >= 0.93 * RESAMPLES
    assert np.mean(widths) < 0.8


def test_a_teacher_that_guesses_changes_nothing_and_one_that_is_never_wrong_gives_all_rows():
    generator = np.random.default_rng(0)
    correct = generator.random(3200) < 0.85
    guesses = generator.random(3200) < 0.5
    plain = share_interval(correct[:200].mean(), 200)
    guessing = powered_accuracy(correct[:200], guesses[:200], guesses[200:])
    assert guessing.weight < 0.1
    assert guessing.interval == pytest.approx(plain, abs=0.01)
    perfect = powered_accuracy(correct[:200], correct[:200], correct[200:])
    # The weight is estimated, so it is not exactly the one that makes all rows count the same
    assert perfect.accuracy == pytest.approx(correct.mean(), abs=0.005)
    assert perfect.interval == pytest.approx(share_interval(correct.mean(), 3200), abs=0.01)
    # Where there is no spread, nothing is gained and nothing fails
    all_right = np.full(50, True)
    assert powered_accuracy(all_right, all_right, all_right).interval == pytest.approx(share_interval(1, 50))


def test_a_certain_threshold_has_the_precision_19_times_in_20_and_the_lowest_one_has_not():
    """The control chooses by the share that is right, as `--threshold precision=P` does on half of dev."""
    generator = np.random.default_rng(0)
    # Rows are right as often as they say, so that the precision from a threshold on is known
    grid = np.linspace(0.5, 1, 5001)
    means_above = (grid + 1) / 2
    num_holding = 0
    num_lowest_holding = 0
    num_found = 0
    for _resample in range(RESAMPLES):
        confidence = generator.uniform(0.5, 1, 400)
        correct = generator.random(400) < confidence
        certain = certain_threshold(confidence, correct, 0.85)
        if certain is None:
            num_holding += 1
        else:
            num_found += 1
            num_holding += np.interp(certain.confidence, grid, means_above) >= 0.85
            assert certain.bound >= 0.85 - 1e-9
            assert certain == sure_rows(confidence, correct, certain.confidence)
        lowest = lowest_confidence(confidence, correct, 0.85)
        num_lowest_holding += np.interp(lowest, grid, means_above) >= 0.85
    assert num_holding >= 0.95 * RESAMPLES
    assert num_found >= 0.8 * RESAMPLES
    assert num_lowest_holding < 0.75 * RESAMPLES


def test_a_precision_that_no_row_surely_has_gives_no_threshold():
    confidence = np.linspace(0.5, 1, 300)
    correct = np.arange(300) % 2 == 0
    assert certain_threshold(confidence, correct, 0.9) is None
    # Too few rows give no certainty, though all are right
    assert certain_threshold(confidence[:20], np.full(20, True), 0.9) is None
    assert certain_threshold(np.full(300, 0.7), np.full(300, True), 0.9).rows == 300
    # A precision far below the share that is right is not missed by the luck of the few surest rows
    assert certain_threshold(confidence[:150], np.arange(150) % 8 > 0, 0.7).rows == 150


def taught_rows(other_right: float = 0.85) -> TaughtRows:
    """Return 200 rows with the labels of both, 1,000 with that of the teacher, and 10 with that of a person;
    on the 1,000 the model is right as often as that."""
    generator = np.random.default_rng(3)
    labels, answers, teacher = drawn_answers(generator, 1210)
    is_other = (np.arange(1210) >= 200) & (np.arange(1210) < 1200)
    _labels, other_answers, _teacher = drawn_answers(generator, 1210, right=other_right)
    other_answers = (other_answers + labels - _labels) % 4
    teacher[1200:] = NO_LABEL
    return TaughtRows(
        column="teacher_label",
        labels=np.where(is_other, NO_LABEL, labels),
        teacher=teacher,
        predicted=np.where(is_other, other_answers, answers),
        confidence=generator.uniform(0.5, 1, 1210),
    )


def test_figures_are_of_the_rows_that_have_both_labels():
    rows = taught_rows()
    metrics = teacher_metrics(rows, threshold=0.75)
    both = slice(0, 200)
    assert (metrics["rows"], metrics["other_rows"]) == (200, 1000)
    shares = [metrics[key]["share"] for key in ("teacher", "model", "agreement")]
    expected = [
        (rows.teacher == rows.labels)[both].mean(),
        (rows.predicted == rows.labels)[both].mean(),
        (rows.predicted == rows.teacher)[both].mean(),
    ]
    assert shares == pytest.approx(expected)
    assert metrics["powered"]["relative_width"] < 0.9
    assert metrics["agreement_differs"] is False
    threshold = metrics["threshold"]
    has_label = rows.labels != NO_LABEL
    is_sure = has_label & (rows.confidence >= 0.75)
    num_right = (rows.predicted == rows.labels)[is_sure].sum()
    assert (threshold["rows"], threshold["right"]) == (is_sure.sum(), num_right)
    assert threshold["precision_bound"] == proportion_interval(num_right, is_sure.sum(), "greater")[0]
    assert threshold["remaining"] == pytest.approx((rows.confidence < 0.75).mean())
    assert threshold["all_rows"] == 1210
    assert "threshold" not in teacher_metrics(rows)


def test_rows_of_another_kind_are_noticed():
    assert teacher_metrics(taught_rows(other_right=0.99))["agreement_differs"] is True
