"""The benchmark of few labels, on made-up vectors: python -m pytest tests/benchmarks/test_few_labels.py"""

import numpy as np
import pytest

from benchmarks.few_labels.__main__ import share_needed, suggest


@pytest.fixture
def data() -> tuple:
    """Four classes of 100 vectors of length 1 around their centres, and as many for the test."""
    random = np.random.default_rng(0)
    centres = 3 * np.eye(8)[:4]

    def drawn() -> tuple[np.ndarray, np.ndarray]:
        labels = random.permutation(np.repeat(np.arange(4), 100))
        vectors = centres[labels] + random.normal(size=(400, 8))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels

    return *drawn(), drawn()


def test_a_strategy_is_compared_with_random_rows(data):
    found = suggest(["breaking_ties"], 1, *data)
    curves = found["curves"]
    assert curves["random"][0] == curves["breaking_ties"][0]
    assert len(curves["random"]) == 12
    assert curves["random"][-1] > 0.85
    shares = [
        share_needed(*(np.array(curves[n]) for n in ("random", "breaking_ties")), g) for g in (150, 300)
    ]
    assert found["shares"] == {"breaking_ties": shares}
    rising = np.linspace(0.1, 0.65, 12)
    assert share_needed(rising, rising, 150) == "100%"
    assert share_needed(rising, rising + 0.05, 300) == "92%"
    assert share_needed(rising, rising - 0.3, 300) == "never"
