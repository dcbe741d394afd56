"""What the kept texts say: shares with exact intervals, the macro F1, the curve and what it foretells."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from app.labelling.figures import agreement_of, macro_f1, right, share_with_interval
from app.labelling.label_file import Answer


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
