"""Injected errors, and how many of them a list of label issues finds: python -m pytest tests/outcomes"""

import numpy as np
import pytest

from app.outcomes import open_outcome
from app.outcomes.injected_errors import measure_injected
from app.outcomes.label_issues import rank_issues
from app.outcomes.labelled_outcome import LabelledOutcome

CHANCES = [0.5, 0.3, 0.2, 0.05]
CLASSES, LISTS = (open_outcome(task, list("甲乙丙丁")) for task in ("single_label", "multi_label"))


def true_lists(num_rows: int) -> np.ndarray:
    """Return the labels of rows that have several, (num_rows, 4)."""
    return (np.random.default_rng(1).random((num_rows, 4)) < CHANCES).astype(np.uint8)


def noisy_rows(outcome: LabelledOutcome, num_rows: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels with injected errors, the logits of a model that has not seen them, and the true
    labels."""
    generator = np.random.default_rng(2)
    if outcome is LISTS:
        true = true_lists(num_rows)
        logits = generator.normal(0, 1, true.shape) + 6.0 * (true - 0.5)
    else:
        true = generator.integers(0, 4, num_rows)
        logits = generator.normal(0, 1, (num_rows, 4))
        logits[np.arange(num_rows), true] += 3.0
    labels = true.copy()
    at, wrong = outcome.inject_errors(true, np.arange(num_rows, dtype=np.uint64), 0.05, 3)
    labels[at] = wrong
    return labels, logits.astype(np.float32), true


@pytest.mark.parametrize("outcome", [CLASSES, LISTS])
def test_a_good_model_finds_injected_errors_and_a_random_one_does_not(outcome):
    pytest.importorskip("cleanlab", reason="cleanlab is not installed: see requirements/labels.txt")
    labels, logits, true = noisy_rows(outcome)
    is_injected = (labels != true).reshape(len(labels), -1).any(axis=1)
    assert is_injected.sum() == pytest.approx(100, abs=2)
    noise = np.random.default_rng(5).normal(0, 1, logits.shape)
    for of_model, is_good in ((logits, True), (noise, False)):
        order = rank_issues(outcome, outcome.score(labels, of_model), of_model)
        measured = measure_injected(order, is_injected)
        assert measured["precision_at_k"] > 0.6 if is_good else measured["precision_at_k"] < 0.2
        assert measured["found"] == is_injected[order[: is_injected.sum()]].sum()
        assert measured["random"] == pytest.approx(0.05, abs=0.001)


@pytest.mark.parametrize("outcome", [CLASSES, LISTS])
def test_errors_are_other_labels_of_about_the_fraction_and_whole_texts(outcome):
    hashes = np.random.default_rng(0).integers(0, 500, 1000).astype(np.uint64)
    labels = true_lists(500)[hashes.astype(np.int64)] if outcome is LISTS else (hashes % 4).astype(np.int64)
    conflicting = np.flatnonzero(hashes == hashes[0])
    labels[conflicting[0]] = 1 - labels[conflicting[1]]
    at, wrong = outcome.inject_errors(labels, hashes, 0.1, 1)
    assert (wrong != labels[at]).reshape(len(at), -1).any(axis=1).all()
    assert {str(label) for label in wrong} <= {str(label) for label in labels}
    assert len(set(hashes[at].tolist())) == len(at)
    assert hashes[0] not in hashes[at]
    assert abs(np.isin(hashes, hashes[at]).sum() - 100) <= 5
    again = outcome.inject_errors(labels, hashes, 0.1, 1)
    assert all((one == other).all() for one, other in zip((at, wrong), again, strict=True))
    assert outcome.inject_errors(labels, hashes, 0.1, 2)[0].tolist() != at.tolist()


def test_small_classes_keep_their_labels_and_no_class_loses_more_than_half():
    labels = np.repeat([0, 1], [200, 8])
    at, wrong = CLASSES.inject_errors(labels, np.arange(208).astype(np.uint64), 0.9, 0)
    assert set(labels[at].tolist()) == {0}
    assert set(wrong.tolist()) == {1}
    assert len(at) == 100


def test_nothing_to_change_is_no_error():
    hashes = np.arange(10, dtype=np.uint64)
    for outcome, labels in ((CLASSES, np.array([0, 1] * 5)), (LISTS, true_lists(10))):
        at, wrong = outcome.inject_errors(labels, hashes, 0.05, 0)
        assert len(at) == len(wrong) == 0
        assert wrong.shape[1:] == labels.shape[1:]
    result = measure_injected(np.arange(3), np.zeros(10, bool))
    assert (result["k"], result["found"], result["interval"]) == (0, 0, None)
