"""The benchmark of few labels, on made-up vectors: python -m pytest tests/benchmarks/test_few_labels.py"""

import numpy as np

from benchmarks.few_labels.__main__ import share_needed, suggest


def test_a_strategy_is_compared_with_random_rows():
    random = np.random.default_rng(0)
    centres = 3 * np.eye(8)[:4]

    def drawn() -> tuple[np.ndarray, np.ndarray]:
        """Four classes of 100 vectors of length 1 around their centres."""
        labels = random.permutation(np.repeat(np.arange(4), 100))
        vectors = centres[labels] + random.normal(size=(400, 8))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels

    found = suggest(["breaking_ties"], 1, *drawn(), drawn())
    curves = found["curves"]
    assert curves["random"][0] == curves["breaking_ties"][0]
    assert len(curves["random"]) == 12
    assert curves["random"][-1] > 0.85
    curve_of = [np.array(curves[name]) for name in ("random", "breaking_ties")]
    assert found["shares"]["breaking_ties"] == [share_needed(*curve_of, goal) for goal in (150, 300)]
    rising = np.linspace(0.1, 0.65, 12)
    assert share_needed(rising, rising, 150) == "100%"
    assert share_needed(rising, rising + 0.05, 300) == "92%"
    assert share_needed(rising, rising - 0.3, 300) == "never"
