"""What the kept texts say: shares with exact intervals, the macro F1, the curve and the gain."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from app.labelling.figures import (
    CurvePoint,
    Figures,
    agreement_of,
    estimated_gain,
    macro_f1,
    right,
    share_with_interval,
)
from app.labelling.label_file import Answer
from app.vectors.head import LinearHead


def test_the_interval_of_a_share_is_exact():
    """That of Clopper and Pearson: for 0 of n, its end is 1 - 0.025 ** (1 / n)."""
    interval = share_with_interval(0, 30)
    assert interval["low"] == 0
    assert interval["high"] == pytest.approx(1 - 0.025 ** (1 / 30))
    assert share_with_interval(30, 30)["low"] == pytest.approx(0.025 ** (1 / 30))


@pytest.mark.parametrize("has_several", [False, True])
def test_the_macro_f1_is_that_of_scikit_learn(has_several):
    generator = np.random.default_rng(0)
    if has_several:
        labels = generator.random((40, 5)) < 0.4
        predicted = generator.random((40, 5)) < 0.4
        labels[:, 4] = False
        predicted[:, 4] = False
        expected = f1_score(labels[:, :4], predicted[:, :4], average="macro")
    else:
        # No text has the last label
        true_ids = generator.integers(0, 4, 40)
        predicted_ids = generator.integers(0, 4, 40)
        labels = np.eye(5)[true_ids]
        predicted = np.eye(5, dtype=bool)[predicted_ids]
        expected = f1_score(true_ids, predicted_ids, average="macro")
    metric = macro_f1(labels, predicted, has_several)
    assert metric["value"] == pytest.approx(expected)
    assert metric["low"] < metric["value"] < metric["high"]


def test_a_label_that_the_head_does_not_know_is_not_right():
    labels = np.array([[1, 0, 0], [0, 0, 1]])
    predicted = np.array([[True, False], [False, True]])
    assert right(labels, predicted).tolist() == [True, False]


def test_agreement_is_of_sets_of_labels():
    first = Answer(("a", "b"), "train", "", "")
    answers = [
        first,
        Answer(("a", "b"), "train", "", "", second_labels=("b", "a")),
        Answer(("a",), "train", "", "", second_labels=()),
    ]
    assert agreement_of(answers)["value"] == 0.5
    assert agreement_of([first]) is None


def test_the_gain_of_a_curve_that_is_known():
    """The texts are right in such shares that the accuracy is 0.9 - 2 / sqrt(answers)."""
    answers = np.arange(25, 400, 5)
    num_right = np.round(10_000 * (0.9 - 2 / np.sqrt(answers))).astype(int)
    rights = np.arange(10_000) < num_right[:, None]
    gain = estimated_gain(answers, rights, 395)
    assert gain["value"] == pytest.approx(2 / np.sqrt(395) - 2 / np.sqrt(445), abs=1e-4)
    assert gain["low"] < gain["value"] < gain["high"]


def test_the_first_quarter_of_the_answers_does_not_bend_the_curve():
    answers = np.arange(25, 400, 5)
    accuracies = 0.9 - 2 / np.sqrt(answers)
    accuracies[answers < 98] = 0.2
    rights = np.arange(10_000) < np.round(10_000 * accuracies).astype(int)[:, None]
    gain = estimated_gain(answers, rights, 395)
    assert gain["value"] == pytest.approx(2 / np.sqrt(395) - 2 / np.sqrt(445), abs=1e-4)


def test_the_interval_of_a_gain_has_a_width_where_no_text_changed():
    answers = np.arange(5, 105, 5)
    gain = estimated_gain(answers, np.ones((20, 12), bool), 100)
    assert gain["value"] == pytest.approx(0)
    assert gain["low"] < -0.001
    assert gain["high"] > 0.001


def figures_of(num_changed: int) -> Figures:
    """Return the figures of heads that are right for all kept texts; `num_changed` of 100 other texts got
    another label in the last answers."""
    zero = np.zeros(1, np.float32)
    first = LinearHead(np.array([[1], [-1]], np.float32), np.zeros(2, np.float32), zero, 1.0, False)
    bias = np.array([0.3, 0], np.float32)
    last = LinearHead(first.weights, bias, zero, 1.0, False)
    vectors = np.array([[1.0], [-1.0]] * 40)
    # The label of vectors near 0 depends on the bias
    other_vectors = np.array([[-0.1]] * num_changed + [[1.0]] * (100 - num_changed))
    points = [CurvePoint(answers, first) for answers in range(10, 510, 10)]
    labels = np.array([[1, 0], [0, 1]] * 40)
    return Figures.of(labels, vectors, other_vectors, last, points, num_answers=510)


def test_more_answers_hardly_pay_where_neither_accuracy_nor_answers_change():
    assert figures_of(1).enough
    assert not figures_of(2).enough
    assert figures_of(2).gain["value"] < 0.01
