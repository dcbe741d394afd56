"""Rows whose label may be wrong: python -m pytest tests/report/test_label_issues.py"""

import numpy as np
import pytest
from scipy.special import expit, softmax

from app.report.label_issues import find_issues, judge
from app.tasks import open_task
from app.tasks.task import Task

pytest.importorskip("cleanlab", reason="cleanlab is not installed: see requirements/labels.txt")
CLASSES, LISTS = (open_task(name, list("甲乙丙丁")) for name in ("single_label", "multi_label"))


def noisy_rows(task: Task, num_rows: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels of which one in twenty is wrong, the logits of a model that has not seen them, and the
    true labels."""
    generator = np.random.default_rng(2)
    if task is LISTS:
        chances = np.random.default_rng(1).random((num_rows, 4))
        true = (chances < [0.5, 0.3, 0.2, 0.05]).astype(np.uint8)
        logits = generator.normal(0, 1, true.shape) + 6.0 * (true - 0.5)
    else:
        true = generator.integers(0, 4, num_rows)
        logits = generator.normal(0, 1, (num_rows, 4))
        logits[np.arange(num_rows), true] += 3.0
    labels = true.copy()
    for row in generator.permutation(num_rows)[: num_rows // 20]:
        others = np.flatnonzero((true != true[row]).reshape(num_rows, -1).any(axis=1))
        labels[row] = true[generator.choice(others)]
    return labels, logits.astype(np.float32), true


@pytest.mark.parametrize("task", [CLASSES, LISTS])
def test_the_first_places_are_wrong_labels_where_the_model_is_good(task):
    labels, logits, true = noisy_rows(task)
    is_wrong = (labels != true).reshape(len(labels), -1).any(axis=1)
    noise = np.random.default_rng(5).normal(0, 1, logits.shape)
    good, random = (find_issues(task, task.score(labels, one), one).order for one in (logits, noise))
    assert is_wrong[good[: is_wrong.sum()]].mean() > 0.6
    assert is_wrong[random[: is_wrong.sum()]].mean() < 0.2


@pytest.mark.parametrize("task", [CLASSES, LISTS])
def test_rows_that_are_predicted_otherwise_are_ranked_by_cleanlab_s_score(task):
    from cleanlab.multilabel_classification import get_label_quality_scores

    labels, logits, true = noisy_rows(task)
    if task is LISTS:
        # Rows without labels
        labels[:50] = 0
        lists = [np.flatnonzero(row).tolist() for row in labels]
        expected = get_label_quality_scores(lists, expit(logits.astype(float)))
    else:
        expected = softmax(logits.astype(float), axis=1)[np.arange(len(labels)), labels]
    scores = task.score(labels, logits)
    issues = find_issues(task, scores, logits)
    assert issues.score == pytest.approx(expected)
    assert (np.diff(issues.score[issues.order]) >= 0).all()
    assert set(issues.order.tolist()) == set(np.flatnonzero(~scores.correct).tolist())
    is_wrong = (labels != true).reshape(len(labels), -1).any(axis=1)
    assert is_wrong[issues.flagged].mean() > 0.5
    assert is_wrong[issues.flagged].sum() > 0.7 * is_wrong.sum()


@pytest.mark.parametrize("task", [CLASSES, LISTS])
def test_only_models_better_than_the_most_frequent_answer_judge_labels(task):
    labels, logits, _ = noisy_rows(task)
    assert judge(task, task.score(labels, logits))["can_judge"]
    collapsed = np.full_like(logits, -1)
    collapsed[:, 0] = 1
    judged = judge(task, task.score(labels, collapsed))
    assert not judged["can_judge"]
    assert judged["accuracy"] <= judged["majority"]


def test_classes_that_are_confused_overlap_most():
    labels, logits, _ = noisy_rows(CLASSES)
    some = np.flatnonzero(labels == 1)[::4]
    logits[some, 2] += 8
    patterns = find_issues(CLASSES, CLASSES.score(labels, logits), logits).patterns
    first = patterns["overlapping_classes"][0]
    assert first["classes"] == ["乙", "丙"]
    assert first["rows"] == pytest.approx(len(some), rel=0.5)


def test_labels_that_are_often_left_out_are_named():
    _, logits, true = noisy_rows(LISTS)
    labels = true.copy()
    left_out = np.flatnonzero(true[:, 1])[::4]
    labels[left_out, 1] = 0
    first, *others = find_issues(LISTS, LISTS.score(labels, logits), logits).patterns["wrong_labels"]
    assert (first["label"], first["kind"]) == ("乙", "missing")
    assert first["rows"] == pytest.approx(len(left_out), rel=0.3)
    assert all(pattern["rows"] < 0.3 * len(left_out) for pattern in others if pattern["kind"] == "extra")


def test_a_label_of_all_rows_and_rows_without_labels_are_no_error():
    labels, logits, _ = noisy_rows(LISTS, 60)
    everywhere = labels.copy()
    everywhere[:, 3] = 1
    assert len(find_issues(LISTS, LISTS.score(everywhere, logits), logits).score) == 60
    nothing = np.zeros((60, 4), np.uint8)
    issues = find_issues(LISTS, LISTS.score(nothing, logits), logits)
    assert not issues.flagged.any()
    assert set(issues.order.tolist()) == set(np.flatnonzero((logits > 0).any(axis=1)).tolist())
