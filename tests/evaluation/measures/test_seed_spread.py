"""The spread of seeds apart from that of rows: python -m pytest tests/evaluation/measures/test_seed_spread.py"""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from app.evaluation.measures.seed_spread import seed_spread


def predictions(num_rows: int, num_seeds: int = 5) -> tuple[np.ndarray, list[np.ndarray]]:
    generator = np.random.default_rng(4)
    labels = generator.integers(0, 3, num_rows)
    # For all seeds
    is_hard = generator.random(num_rows) < 0.3
    return labels, [
        np.where(is_hard | (generator.random(num_rows) < 0.05), (labels + 1) % 3, labels)
        for _ in range(num_seeds)
    ]


def test_figures_are_those_of_sklearn():
    labels, predicted = predictions(500)
    found = seed_spread(labels, predicted, 3)
    accuracies = [accuracy_score(labels, one) for one in predicted]
    scores = [f1_score(labels, one, average="macro") for one in predicted]
    assert found["accuracy"].values == pytest.approx(accuracies)
    assert found["macro_f1"].values == pytest.approx(scores)
    assert found["accuracy"].mean == pytest.approx(np.mean(accuracies))
    assert found["macro_f1"].of_seeds == pytest.approx(np.std(scores, ddof=1))


def test_sampling_is_that_of_the_rows_and_not_of_the_seeds():
    labels, predicted = predictions(2000)
    found = seed_spread(labels, predicted, 3)["accuracy"]
    of_row = np.mean([one == labels for one in predicted], axis=0)
    assert found.sampling == pytest.approx(of_row.std() / np.sqrt(2000), rel=0.1)
    assert found.interval == pytest.approx(
        (found.mean - 1.96 * found.sampling, found.mean + 1.96 * found.sampling), abs=0.004
    )
    assert found.of_seeds < found.sampling


def test_equal_seeds_have_no_spread_but_rows_still_do():
    labels, predicted = predictions(300, num_seeds=1)
    found = seed_spread(labels, predicted * 3, 3)["macro_f1"]
    assert found.of_seeds == pytest.approx(0, abs=1e-12)
    assert found.sampling > 0.01
