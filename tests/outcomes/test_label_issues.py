"""Rows whose label may be wrong: python -m pytest tests/outcomes/test_label_issues.py"""

import numpy as np
import pytest
from scipy.special import expit, softmax

from app.outcomes.label_issues import find_issues, judge
from tests.outcomes.test_injected_errors import CLASSES, LISTS, noisy_rows

pytest.importorskip("cleanlab", reason="cleanlab is not installed: see requirements/labels.txt")


@pytest.mark.parametrize("outcome", [CLASSES, LISTS])
def test_rows_that_are_predicted_otherwise_are_ranked_by_cleanlab_s_score(outcome):
    from cleanlab.multilabel_classification import get_label_quality_scores

    labels, logits, true = noisy_rows(outcome)
    if outcome is LISTS:
        # Rows without labels
        labels[:50] = 0
        lists = [np.flatnonzero(row).tolist() for row in labels]
        expected = get_label_quality_scores(lists, expit(logits.astype(float)))
    else:
        expected = softmax(logits.astype(float), axis=1)[np.arange(len(labels)), labels]
    scores = outcome.score(labels, logits)
    issues = find_issues(outcome, scores, logits)
    assert issues.score == pytest.approx(expected)
    assert (np.diff(issues.score[issues.order]) >= 0).all()
    assert set(issues.order.tolist()) == set(np.flatnonzero(~scores.correct).tolist())
    is_wrong = (labels != true).reshape(len(labels), -1).any(axis=1)
    assert is_wrong[issues.flagged].mean() > 0.5
    assert is_wrong[issues.flagged].sum() > 0.7 * is_wrong.sum()


@pytest.mark.parametrize("outcome", [CLASSES, LISTS])
def test_only_models_better_than_the_most_frequent_answer_judge_labels(outcome):
    labels, logits, _ = noisy_rows(outcome)
    assert judge(outcome, outcome.score(labels, logits))["can_judge"]
    collapsed = np.full_like(logits, -1)
    collapsed[:, 0] = 1
    judged = judge(outcome, outcome.score(labels, collapsed))
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
