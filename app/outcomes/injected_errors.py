"""Injected errors: labels changed on purpose, to measure how many a list of label issues finds."""

from collections.abc import Callable

import numpy as np

from ..data.splits import text_groups
from ..evaluation.measures.selective import proportion_interval

# Texts of a kind that stay as they are: a class must not disappear from train
SMALL_CLASS = 10


def choose_errors(
    kinds: np.ndarray, hashes: np.ndarray, differ: Callable[[int, int], bool], fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of rows to change, one for each chosen text, and of random rows that `differ` from
    them, whose labels they get; both (num_errors,).

    `kinds` and `hashes` are (num_rows,). About `fraction` of the rows are changed, all rows of a text
    together. A text whose rows are of several kinds is left out; no kind loses more than half of its texts.
    """
    generator = np.random.default_rng(seed)
    first, order, sizes = text_groups(hashes)
    is_mixed = np.logical_or.reduceat(kinds[order] != np.repeat(kinds[first], sizes), sizes.cumsum() - sizes)
    _, kind_of_text, counts = np.unique(kinds[first], return_inverse=True, return_counts=True)
    left = np.where(counts > SMALL_CLASS, counts // 2, 0)
    chosen, others, wanted = [], [], fraction * len(kinds)
    for text in generator.permutation(np.flatnonzero(~is_mixed)):
        if wanted < sizes[text] / 2:
            break
        if left[kind_of_text[text]]:
            left[kind_of_text[text]] -= 1
            wanted -= sizes[text]
            row = other = first[text]
            while not differ(row, other):
                other = generator.integers(len(kinds))
            chosen.append(row)
            others.append(other)
    return np.array(chosen, np.int64), np.array(others, np.int64)


def measure_injected(order: np.ndarray, is_injected: np.ndarray) -> dict:
    """Return how many of k injected errors, (num_rows,) bool, are in the first k places of a ranking, as JSON
    has it; `order` as in `LabelIssues`."""
    rows, k = len(is_injected), int(is_injected.sum())
    found = int(is_injected[order[:k]].sum())
    return {
        "rows": rows,
        "k": k,
        "found": found,
        "precision_at_k": found / max(1, k),
        "interval": list(proportion_interval(found, k)) if k else None,
        "random": k / max(1, rows),
    }
