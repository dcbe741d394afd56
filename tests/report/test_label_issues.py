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
    """Return labels, logits of a model that has not seen them, and which labels, one in twenty, are wrong."""
    generator = np.random.default_rng(2)
    if task is LISTS:
        true = (generator.random((num_rows, 4)) < [0.5, 0.3, 0.2, 0.05]).astype(np.uint8)
        logits = generator.normal(0, 1, true.shape) + 6.0 * (true - 0.5)
    else:
        true = generator.integers(0, 4, num_rows)
        logits = generator.normal(0, 1, (num_rows, 4)) + 3.0 * np.eye(4)[true]
    labels = true.copy()
    for row in generator.permutation(num_rows)[: num_rows // 20]:
        others = np.flatnonzero((true != true[row]).reshape(num_rows, -1).any(axis=1))
        labels[row] = true[generator.choice(others)]
    return labels, logits.astype(np.float32), (labels != true).reshape(num_rows, -1).any(axis=1)


@pytest.mark.parametrize("task", [CLASSES, LISTS])
def test_rows_that_are_predicted_otherwise_are_ranked_by_cleanlab_s_score(task):
    from cleanlab.multilabel_classification import get_label_quality_scores

    labels, logits, is_wrong = noisy_rows(task)
    if task is LISTS:
        lists = [np.flatnonzero(row).tolist() or [0] for row in labels]
        expected = get_label_quality_scores(lists, expit(logits.astype(float)))
        some = labels.any(axis=1)
    else:
        expected = softmax(logits.astype(float), axis=1)[np.arange(len(labels)), labels]
        some = slice(None)
    scores = task.score(labels, logits)
    order, quality, flagged = find_issues(task, scores, logits)
    assert quality[some] == pytest.approx(expected[some])
    assert (np.diff(quality[order]) >= 0).all()
    assert set(order.tolist()) == set(np.flatnonzero(~scores.correct).tolist())
    assert is_wrong[order[: is_wrong.sum()]].mean() > 0.6
    assert is_wrong[flagged].mean() > 0.5
    assert is_wrong[flagged].sum() > 0.7 * is_wrong.sum()


@pytest.mark.parametrize("task", [CLASSES, LISTS])
def test_only_models_better_than_the_most_frequent_answer_judge_labels(task):
    labels, logits, _ = noisy_rows(task)
    assert judge(task.score(labels, logits))["can_judge"]
    collapsed = np.full_like(logits, -1)
    collapsed[:, 0] = 1
    judged = judge(task.score(labels, collapsed))
    assert not judged["can_judge"]
    assert judged["accuracy"] <= judged["majority"]


def test_a_label_of_all_rows_and_rows_without_labels_are_no_error():
    labels, logits, _ = noisy_rows(LISTS, 60)
    labels[:, 3] = 1
    assert len(find_issues(LISTS, LISTS.score(labels, logits), logits)[1]) == 60
    labels[:] = 0
    order, _quality, flagged = find_issues(LISTS, LISTS.score(labels, logits), logits)
    assert not flagged.any()
    assert set(order.tolist()) == set(np.flatnonzero((logits > 0).any(axis=1)).tolist())
