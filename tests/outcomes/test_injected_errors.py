"""Injected errors, and how many of them a list of label issues finds: python -m pytest tests/outcomes"""

import numpy as np
import pytest

from app.outcomes import open_outcome
from app.outcomes.injected_errors import inject_class_errors, inject_list_errors, measure_injected
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
    pytest.importorskip("cleanlab", reason="cleanlab is not installed: see requirements-labels.txt")
    labels, logits, true = noisy_rows(outcome)
    is_injected = (labels != true).reshape(len(labels), -1).any(axis=1)
    assert is_injected.sum() == pytest.approx(100, abs=2)
    noise = np.random.default_rng(5).normal(0, 1, logits.shape)
    for of_model, is_good in ((logits, True), (noise, False)):
        order = rank_issues(outcome, outcome.score(labels, of_model), of_model)
        measured = measure_injected(order, is_injected)
        assert measured.precision > 0.6 if is_good else measured.precision < 0.2
        assert measured.found == is_injected[order[: is_injected.sum()]].sum()
        assert measured.random == pytest.approx(0.05, abs=0.001)
        assert is_good <= (measured.to_dict()["precision_at_half_k"] >= measured.precision)


def test_errors_are_other_labels_of_about_the_fraction_and_whole_texts():
    generator = np.random.default_rng(0)
    hashes = generator.integers(0, 500, 1000).astype(np.uint64)
    labels = (hashes % 5).astype(np.int64)
    # A text with conflicting labels
    labels[hashes == hashes[0]] = np.arange((hashes == hashes[0]).sum()) % 2
    at, wrong = inject_class_errors(labels, hashes, 5, 0.1, seed=1)
    assert (wrong != labels[at]).all()
    assert ((wrong >= 0) & (wrong < 5)).all()
    assert len(set(hashes[at].tolist())) == len(at)
    assert hashes[0] not in hashes[at]
    assert abs(np.isin(hashes, hashes[at]).sum() - 100) <= 5
    assert set(labels[at].tolist()) == set(wrong.tolist()) == set(range(5))
    again = inject_class_errors(labels, hashes, 5, 0.1, seed=1)
    assert all((one == other).all() for one, other in zip((at, wrong), again, strict=True))
    assert inject_class_errors(labels, hashes, 5, 0.1, seed=2)[0].tolist() != at.tolist()


def test_small_classes_keep_their_labels_and_no_class_loses_more_than_half():
    labels = np.repeat([0, 1], [200, 8])
    at, _ = inject_class_errors(labels, np.arange(208).astype(np.uint64), 2, 0.9, seed=0)
    assert set(labels[at].tolist()) == {0}
    assert len(at) == 100


def test_errors_add_or_remove_one_label_in_about_the_fraction_of_the_rows():
    hashes = np.random.default_rng(0).integers(0, 500, 1000).astype(np.uint64)
    labels = true_lists(500)[hashes.astype(np.int64)]
    split = np.flatnonzero(hashes == hashes[0])
    assert len(split) > 1
    # A text with conflicting labels
    labels[split[0]] = 1 - labels[split[1]]
    at, wrong = inject_list_errors(labels, hashes, 0.1, seed=1)
    change = wrong.astype(int) - labels[at]
    assert (np.abs(change).sum(axis=1) == 1).all()
    added, removed = (change == 1).sum(), (change == -1).sum()
    assert min(added, removed) >= 0.25 * len(at)
    assert len(set(hashes[at].tolist())) == len(at)
    assert hashes[0] not in hashes[at]
    assert abs(np.isin(hashes, hashes[at]).sum() - 100) <= 5
    again = inject_list_errors(labels, hashes, 0.1, seed=1)
    assert all((one == other).all() for one, other in zip((at, wrong), again, strict=True))
    assert inject_list_errors(labels, hashes, 0.1, seed=2)[0].tolist() != at.tolist()


def test_no_label_gets_or_loses_more_than_half_and_rows_keep_the_sizes_of_the_data():
    labels = np.zeros((400, 3), np.uint8)
    labels[:300, 0] = labels[200:, 1] = 1
    # Too few texts to change
    labels[:8, 2] = 1
    at, wrong = inject_list_errors(labels, np.arange(400, dtype=np.uint64), 0.9, seed=0)
    change = wrong.astype(int) - labels[at]
    assert (change[:, 2] == 0).all()
    for label, texts in ((0, 300), (1, 200)):
        assert (change[:, label] == 1).sum() <= texts / 2
        assert (change[:, label] == -1).sum() <= texts / 2
    assert set(wrong.sum(axis=1).tolist()) == {1, 2}


def test_nothing_to_change_is_no_error():
    hashes = np.arange(10, dtype=np.uint64)
    for inject, labels in (
        (CLASSES.inject_errors, np.array([0, 1] * 5)),
        (LISTS.inject_errors, true_lists(10)),
    ):
        at, wrong = inject(labels, hashes, 0.05, 0)
        assert len(at) == len(wrong) == 0
        assert wrong.shape[1:] == labels.shape[1:]
    result = measure_injected(np.arange(3), np.zeros(10, bool)).to_dict()
    assert (result["k"], result["found"], result["interval"]) == (0, 0, None)
