"""Labels that are flipped on purpose, to measure how many of them the ranking of label issues finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.evaluation.labels.issues import score_labels
from app.evaluation.measures.selective import proportion_interval

SMALL_CLASS = 10  # texts of a class that stay as they are: a class must not disappear from train


def choose_flips(
    labels: np.ndarray, hashes: np.ndarray, num_labels: int, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of rows to flip, one for each chosen text, and the wrong class ids they get, both (num_flips,).

    `labels` and `hashes` are (num_rows,). About `fraction` of the rows get any other label with the same probability; all rows
    of a text together. A text with conflicting labels is left out, and no class loses more than half of its texts.
    """
    generator = np.random.default_rng(seed)
    _, first, group, sizes = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    lowest, highest = np.full(len(first), num_labels), np.full(len(first), -1)
    np.minimum.at(lowest, group, labels)
    np.maximum.at(highest, group, labels)
    of_text = labels[first]
    counts = np.bincount(of_text, minlength=num_labels)
    left = np.where(counts > SMALL_CLASS, counts // 2, 0)  # how many texts each class may lose
    chosen, wanted = [], fraction * len(labels)
    for text in generator.permutation(np.flatnonzero(lowest == highest)):
        if wanted < sizes[text] / 2:
            break
        if left[of_text[text]]:
            left[of_text[text]] -= 1
            wanted -= sizes[text]
            chosen.append(text)
    positions = first[np.array(chosen, np.int64)]
    wrong = generator.integers(0, num_labels - 1, len(positions))
    return positions, wrong + (wrong >= labels[positions])


@dataclass(frozen=True)
class PlantedResult:
    """How many of `planted` flipped rows among `rows` are in the first `planted` places of the ranking: `found`; and in the
    first half as many places: `found_in_half`."""

    rows: int
    planted: int
    found: int
    found_in_half: int

    @property
    def precision(self) -> float:
        """The fraction of the first `planted` places that are flipped rows."""
        return self.found / max(1, self.planted)

    @property
    def random(self) -> float:
        """The precision of a random order."""
        return self.planted / max(1, self.rows)

    def to_dict(self) -> dict:
        """Return the figures as JSON has them."""
        half = max(1, self.planted // 2)
        return {
            "rows": self.rows,
            "k": self.planted,
            "found": self.found,
            "precision_at_k": self.precision,
            "interval": list(proportion_interval(self.found, self.planted)) if self.planted else None,
            "half_k": half,
            "precision_at_half_k": self.found_in_half / half,
            "random": self.random,
        }


def measure_planted(labels: np.ndarray, logits: np.ndarray, is_planted: np.ndarray) -> PlantedResult:
    """Return how well the ranking of `find_label_issues` finds the rows that `is_planted`, (num_rows,) bool.

    `labels` (num_rows,) have the flips; `logits` (num_rows, num_labels) are of models that were trained with flips elsewhere.
    """
    score, suggested = score_labels(np.asarray(labels, np.int64), logits)
    wrong = np.flatnonzero(suggested != labels)
    order = wrong[np.argsort(score[wrong], kind="stable")]
    planted = int(is_planted.sum())
    found, half = (int(is_planted[order[:places]].sum()) for places in (planted, max(1, planted // 2)))
    return PlantedResult(len(labels), planted, found, half if planted else 0)
