"""Flipped labels, and how many of them are found: python -m pytest tests/evaluation/labels"""

import numpy as np
import pytest

from app.evaluation.labels.issues import find_label_issues, least_plausible, score_labels
from app.evaluation.labels.planted import PlantedResult, choose_flips, measure_planted

pytest.importorskip("cleanlab", reason="cleanlab is not installed: pip install -r requirements-labels.txt")


def noisy_rows(num_rows: int = 2000, skill: float = 3.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels with flips, the logits of a model that has not seen them, and which rows are flipped."""
    generator = np.random.default_rng(1)
    true, hashes = generator.integers(0, 4, num_rows), np.arange(num_rows).astype(np.uint64)
    logits = generator.normal(0, 1, (num_rows, 4)).astype(np.float32)
    logits[np.arange(num_rows), true] += skill
    at, wrong = choose_flips(true, hashes, 4, 0.05, seed=3)
    labels = true.copy()
    labels[at] = wrong
    return labels, logits, labels != true


def measure(labels: np.ndarray, logits: np.ndarray, is_planted: np.ndarray) -> PlantedResult:
    score, suggested = score_labels(labels, logits)
    return measure_planted(least_plausible(suggested != labels, score), is_planted)


def test_flips_are_other_labels_of_about_the_fraction_and_whole_texts():
    generator = np.random.default_rng(0)
    hashes = generator.integers(0, 500, 1000).astype(np.uint64)
    labels = (hashes % 5).astype(np.int64)
    # A text with conflicting labels
    labels[hashes == hashes[0]] = np.arange((hashes == hashes[0]).sum()) % 2
    at, wrong = choose_flips(labels, hashes, 5, 0.1, seed=1)
    assert (wrong != labels[at]).all()
    assert ((wrong >= 0) & (wrong < 5)).all()
    assert len(set(hashes[at].tolist())) == len(at)
    assert hashes[0] not in hashes[at]
    assert abs(np.isin(hashes, hashes[at]).sum() - 100) <= 5
    assert set(labels[at].tolist()) == set(wrong.tolist()) == set(range(5))
    again = choose_flips(labels, hashes, 5, 0.1, seed=1)
    assert all((one == other).all() for one, other in zip((at, wrong), again, strict=True))
    assert choose_flips(labels, hashes, 5, 0.1, seed=2)[0].tolist() != at.tolist()


def test_small_classes_keep_their_labels_and_no_class_loses_more_than_half():
    labels = np.repeat([0, 1], [200, 8])
    at, _ = choose_flips(labels, np.arange(208).astype(np.uint64), 2, 0.9, seed=0)
    assert set(labels[at].tolist()) == {0}
    assert len(at) == 100


def test_a_good_model_finds_flips_and_a_random_one_does_not():
    labels, logits, is_planted = noisy_rows()
    good = measure(labels, logits, is_planted)
    assert good.planted == is_planted.sum() == pytest.approx(100, abs=2)
    assert good.precision > 0.6
    assert good.to_dict()["precision_at_half_k"] >= good.precision
    assert good.random == pytest.approx(0.05, abs=0.001)
    noise = np.random.default_rng(2).normal(0, 1, logits.shape)
    assert measure(labels, noise, is_planted).precision < 0.2


def test_precision_is_that_of_the_first_places_of_the_list():
    labels, logits, is_planted = noisy_rows()
    issues = find_label_issues(labels, logits)
    k = int(is_planted.sum())
    assert measure(labels, logits, is_planted).found == is_planted[issues.order[:k]].sum()


def test_issues_are_ranked_by_the_probability_of_the_label():
    labels, logits, is_planted = noisy_rows()
    issues = find_label_issues(labels, logits)
    shares = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum(1, keepdims=True)
    assert issues.score == pytest.approx(shares[np.arange(len(labels)), labels])
    assert (np.diff(issues.score[issues.order]) >= 0).all()
    assert set(issues.order.tolist()) == set(np.flatnonzero(logits.argmax(1) != labels).tolist())
    assert (issues.suggested == logits.argmax(1)).all()
    assert is_planted[issues.flagged].mean() > 0.5
    assert is_planted[issues.flagged].sum() > 0.7 * is_planted.sum()
    scores, _ = score_labels(labels, logits)
    assert scores.tolist() == issues.score.tolist()


def test_classes_that_are_confused_overlap_most():
    labels, logits, _ = noisy_rows()
    logits = logits.copy()
    some = np.flatnonzero(labels == 1)[::4]
    logits[some, 2] += 8
    (first, second, rows), *_ = find_label_issues(labels, logits).overlaps
    assert (first, second) == (1, 2)
    assert rows == pytest.approx(len(some), rel=0.5)


def test_nothing_to_flip_is_no_error():
    labels = np.array([0, 1] * 5)
    at, wrong = choose_flips(labels, np.arange(10).astype(np.uint64), 2, 0.05, seed=0)
    assert len(at) == len(wrong) == 0
    result = measure(labels, np.eye(2)[labels], np.zeros(10, bool)).to_dict()
    assert (result["k"], result["found"], result["interval"]) == (0, 0, None)
