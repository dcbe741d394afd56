"""Label sets that may be wrong, and flipped labels in them: python -m pytest
tests/evaluation/labels/test_set_issues.py"""

import numpy as np
import pytest

from app.evaluation.labels.issues import least_plausible
from app.evaluation.labels.planted import choose_set_flips, measure_planted
from app.evaluation.labels.set_issues import find_set_issues, score_sets

pytest.importorskip("cleanlab", reason="cleanlab is not installed: pip install -r requirements-labels.txt")
CHANCES = [0.5, 0.3, 0.2, 0.05]


def true_sets(num_rows: int) -> np.ndarray:
    return (np.random.default_rng(1).random((num_rows, 4)) < CHANCES).astype(np.uint8)


def noisy_rows(num_rows: int = 2000, skill: float = 6.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return label sets with flips, the logits of a model that has not seen them, and the true sets."""
    true = true_sets(num_rows)
    logits = np.random.default_rng(2).normal(0, 1, true.shape) + skill * (true - 0.5)
    labels = true.copy()
    at, wrong = choose_set_flips(true, np.arange(num_rows, dtype=np.uint64), 0.05, seed=3)
    labels[at] = wrong
    return labels, logits.astype(np.float32), true


def test_flips_add_or_remove_one_label_in_about_the_fraction_of_the_rows():
    hashes = np.random.default_rng(0).integers(0, 500, 1000).astype(np.uint64)
    labels = true_sets(500)[hashes.astype(np.int64)]
    split = np.flatnonzero(hashes == hashes[0])
    assert len(split) > 1
    # A text with conflicting sets
    labels[split[0]] = 1 - labels[split[1]]
    at, wrong = choose_set_flips(labels, hashes, 0.1, seed=1)
    change = wrong.astype(int) - labels[at]
    assert (np.abs(change).sum(axis=1) == 1).all()
    added, removed = (change == 1).sum(), (change == -1).sum()
    assert min(added, removed) >= 0.25 * len(at)
    assert len(set(hashes[at].tolist())) == len(at)
    assert hashes[0] not in hashes[at]
    assert abs(np.isin(hashes, hashes[at]).sum() - 100) <= 5
    again = choose_set_flips(labels, hashes, 0.1, seed=1)
    assert all((one == other).all() for one, other in zip((at, wrong), again, strict=True))
    assert choose_set_flips(labels, hashes, 0.1, seed=2)[0].tolist() != at.tolist()


def test_no_label_gets_or_loses_more_than_half_and_sets_keep_the_sizes_of_the_data():
    labels = np.zeros((400, 3), np.uint8)
    labels[:300, 0] = labels[200:, 1] = 1
    # Too few texts to change
    labels[:8, 2] = 1
    at, wrong = choose_set_flips(labels, np.arange(400, dtype=np.uint64), 0.9, seed=0)
    change = wrong.astype(int) - labels[at]
    assert (change[:, 2] == 0).all()
    for label, texts in ((0, 300), (1, 200)):
        assert (change[:, label] == 1).sum() <= texts / 2
        assert (change[:, label] == -1).sum() <= texts / 2
    assert set(wrong.sum(axis=1).tolist()) == {1, 2}


def test_a_good_model_finds_flips_and_a_random_one_does_not():
    labels, logits, true = noisy_rows()
    is_planted = (labels != true).any(axis=1)
    assert is_planted.sum() == pytest.approx(100, abs=2)
    for chances, is_good in ((logits, True), (np.random.default_rng(5).normal(0, 1, logits.shape), False)):
        order = least_plausible(((chances > 0) != labels).any(axis=1), score_sets(labels, chances))
        precision = measure_planted(order, is_planted).precision
        assert precision > 0.8 if is_good else precision < 0.2


def test_rows_that_are_predicted_otherwise_are_ranked_by_cleanlab_s_score():
    from cleanlab.multilabel_classification import get_label_quality_scores

    labels, logits, true = noisy_rows()
    # Rows without labels
    labels[:50] = 0
    predicted = logits > 0.5
    issues = find_set_issues(labels, logits, predicted)
    chances = 1 / (1 + np.exp(-logits.astype(float)))
    lists = [np.flatnonzero(row).tolist() for row in labels]
    assert issues.score == pytest.approx(get_label_quality_scores(lists, chances))
    assert (np.diff(issues.score[issues.order]) >= 0).all()
    assert set(issues.order.tolist()) == set(np.flatnonzero((predicted != labels).any(axis=1)).tolist())
    assert np.array_equal(issues.suggested, predicted)
    is_wrong = (labels != true).any(axis=1)
    assert is_wrong[issues.flagged].mean() > 0.7
    assert is_wrong[issues.flagged].sum() > 0.7 * is_wrong.sum()


def test_labels_that_are_often_left_out_are_named():
    labels, logits, true = noisy_rows()
    labels = true.copy()
    left_out = np.flatnonzero(true[:, 1])[::4]
    labels[left_out, 1] = 0
    issues = find_set_issues(labels, logits, logits > 0)
    assert issues.missing.argmax() == 1
    assert issues.missing[1] == pytest.approx(len(left_out), rel=0.3)
    assert issues.extra.max() < 0.3 * len(left_out)


def test_a_label_of_all_rows_and_rows_without_labels_are_no_error():
    labels, logits, _ = noisy_rows(60)
    everywhere = np.concatenate([labels, np.ones((60, 1), np.uint8)], axis=1)
    more = np.concatenate([logits, np.full((60, 1), 3, np.float32)], axis=1)
    assert len(find_set_issues(everywhere, more, more > 0).score) == 60
    nothing = np.zeros((60, 4), np.uint8)
    issues = find_set_issues(nothing, logits, logits > 0)
    assert not issues.flagged.any()
    assert set(issues.order.tolist()) == set(np.flatnonzero((logits > 0).any(axis=1)).tolist())


def test_nothing_to_flip_is_no_error():
    at, wrong = choose_set_flips(np.eye(4, dtype=np.uint8), np.arange(4, dtype=np.uint64), 0.05, seed=0)
    assert (len(at), wrong.shape) == (0, (0, 4))
