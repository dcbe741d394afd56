"""Thresholds, limits and metrics of several labels a row: python -m pytest tests/tasks/test_thresholds.py"""

import json
import os

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, hamming_loss, log_loss, precision_score, recall_score

from app.errors import InputError
from app.report.metrics import measure
from app.tasks import open_task
from app.tasks.multi_label import choose_thresholds, sigmoid
from tests.multi_label_runs import task_with, write_thresholds
from tests.report.rows_case import measured


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    """0/1 labels and logits of 200 rows and 5 labels that have something to do with them; the last label is
    never there."""
    generator = np.random.default_rng(0)
    labels = (generator.random((200, 5)) < [0.5, 0.3, 0.1, 0.02, 0.0]).astype(np.uint8)
    return labels, (labels * 2.0 - 1 + generator.normal(0, 2, labels.shape)).astype(np.float32)


def test_figures_are_those_of_scikit_learn(rows):
    labels, logits = rows
    names, thresholds = list("abcde"), np.array([0.5, 0.3, 0.6, 0.2, 0.9])
    name = task_with(thresholds, names)
    found = measure(name, name.score(labels, logits))
    predicted = sigmoid(logits) >= thresholds
    for average in ("micro", "macro", "weighted"):
        for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
            expected = score(labels, predicted, average=average, zero_division=0)
            assert found[average][name] == pytest.approx(expected, abs=1e-12)
    by_label = f1_score(labels, predicted, average=None, zero_division=0)
    assert [found["classes"][name]["f1"] for name in names] == pytest.approx(by_label.tolist())
    assert [found["classes"][name]["support"] for name in names] == labels.sum(axis=0).tolist()
    assert found["subset_accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    assert found["hamming_loss"] == pytest.approx(hamming_loss(labels, predicted))
    assert found["samples_f1"] == pytest.approx(
        f1_score(labels, predicted, average="samples", zero_division=1)
    )
    columns = [log_loss(labels[:, i], sigmoid(logits)[:, i], labels=[0, 1]) for i in range(5)]
    assert found["loss"] == pytest.approx(np.mean(columns), rel=1e-6)


def test_a_threshold_is_the_best_of_all_that_could_be(rows):
    labels, logits = rows
    # So that some are equal
    probabilities = sigmoid(logits).round(2)
    chosen = choose_thresholds(labels, probabilities)
    assert chosen[4] == 0.5
    for label in range(4):
        column = probabilities[:, label]
        best = max(
            f1_score(labels[:, label], column >= t, zero_division=0) for t in np.linspace(-0.005, 1.005, 102)
        )
        assert f1_score(labels[:, label], column >= chosen[label]) == pytest.approx(best)


def test_of_equally_good_thresholds_the_nearest_to_a_half_is_chosen():
    labels = np.array([[1], [1], [0], [0]])
    assert choose_thresholds(labels, np.array([[0.9], [0.7], [0.2], [0.1]])).tolist() == [pytest.approx(0.45)]
    everything = np.ones((3, 1), dtype=np.uint8)
    assert choose_thresholds(everything, np.array([[0.9], [0.4], [0.2]])).tolist() == [pytest.approx(0.1)]


def test_probabilities_that_a_rounding_error_may_swap_are_not_told_apart():
    labels = np.array([[1], [1], [0], [0]])
    logits = np.array([[3.0], [1.0 + 1e-6], [1.0], [-2.0]])
    threshold = choose_thresholds(labels, sigmoid(logits))[0]
    assert sigmoid(-2.0) < threshold < sigmoid(0.9)
    assert choose_thresholds(labels, sigmoid(logits - 40))[0] < sigmoid(-39.1)


def test_extreme_logits_have_finite_figures():
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]], dtype=np.float32)
    found = measured(np.array([[1, 0], [0, 1]]), logits, ["a", "b"], "multi_label")
    assert found["loss"] == 0
    assert found["subset_accuracy"] == 1


def test_the_rule_of_a_run_is_written_and_read(tmp_path):
    task = open_task("multi_label", ["a", "b"])
    task.read(tmp_path)
    assert task.thresholds.tolist() == [0.5, 0.5]
    write_thresholds(tmp_path, [0.25, 0.125], ["b", "a"], chosen_on="dev", rows=20)
    task.read(tmp_path)
    assert task.thresholds.tolist() == [0.125, 0.25]
    assert (task.chosen_on, task.rows) == ("dev", 20)
    (tmp_path / "decision.json").write_text(json.dumps({"thresholds": {"a": 0.5}}))
    with pytest.raises(InputError, match="what was fitted for the decision is needed"):
        task.read(tmp_path)


def test_a_pipe_in_place_of_the_file_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "decision.json")
    for name in ("multi_label", "single_label"):
        with pytest.raises(InputError, match="a regular file is needed"):
            open_task(name, ["a", "b"]).read(tmp_path)


@pytest.mark.parametrize("value", ["-0.1", "1.5", "1e300", "NaN", "Infinity", '"0.5"', "true", "null"])
def test_a_threshold_that_is_no_probability_is_an_error_with_file_and_value(tmp_path, value):
    path, task = tmp_path / "decision.json", open_task("multi_label", ["a", "b"])
    path.write_text(f'{{"thresholds": {{"a": 0.5, "b": {value}}}}}')
    with pytest.raises(InputError) as raised:
        task.read(tmp_path)
    assert str(path) in str(raised.value)
    assert f"the threshold of b must be from 0 to 1, found {json.loads(value)!r}" in str(raised.value)
