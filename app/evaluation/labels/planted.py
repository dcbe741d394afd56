"""Labels that are flipped on purpose, to measure how many of them the ranking of label issues finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...data.label_sets import set_ids
from ...data.text_groups import text_groups
from ..measures.selective import proportion_interval

# Texts of a class that stay as they are: a class must not disappear from train
SMALL_CLASS = 10


def choose_flips(
    labels: np.ndarray, hashes: np.ndarray, num_labels: int, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of rows to flip, one for each chosen text, and the wrong class ids they get, both
    (num_flips,).

    `labels` and `hashes` are (num_rows,). About `fraction` of the rows get any other label with the same
    probability; all rows of a text together. A text with conflicting labels is left out, and no class loses
    more than half of its texts.
    """
    generator = np.random.default_rng(seed)
    texts = Texts(labels, hashes)
    of_text = labels[texts.first]
    left = may_change(np.bincount(of_text, minlength=num_labels))
    chosen, wanted = [], fraction * len(labels)
    for text in generator.permutation(texts.agreed):
        if wanted < texts.sizes[text] / 2:
            break
        if left[of_text[text]]:
            left[of_text[text]] -= 1
            wanted -= texts.sizes[text]
            chosen.append(text)
    positions = texts.first[np.array(chosen, np.int64)]
    wrong = generator.integers(0, num_labels - 1, len(positions))
    return positions, wrong + (wrong >= labels[positions])


def choose_set_flips(
    labels: np.ndarray, hashes: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of rows to change, one for each chosen text, (num_flips,), and the sets they get,
    (num_flips, num_labels).

    `labels` (num_rows, num_labels) are 0 and 1. In about `fraction` of the rows one label is added or
    removed, which of the two by chance; all rows of a text together. No label gets or loses more than half as
    many texts as it has, and no set gets smaller or larger than sets of the data are. A text with conflicting
    sets is left out.
    """
    generator = np.random.default_rng(seed)
    texts = Texts(labels, hashes)
    of_text = labels[texts.first].astype(bool)
    to_add, to_remove = (may_change(of_text.sum(axis=0, dtype=np.int64)) for _ in range(2))
    sizes = of_text.sum(axis=1)
    fewest, most = sizes.min(), sizes.max()
    chosen, sets, wanted = [], [], fraction * len(labels)
    for text in generator.permutation(texts.agreed):
        if wanted < texts.sizes[text] / 2:
            break
        has = of_text[text]
        size = has.sum()
        ways = (
            (to_add, ~has & (to_add > 0) & (size < most)),
            (to_remove, has & (to_remove > 0) & (size > fewest)),
        )
        ways = [(left, np.flatnonzero(can)) for left, can in ways if can.any()]
        if ways:
            left, candidates = ways[generator.integers(len(ways))]
            label = generator.choice(candidates)
            left[label] -= 1
            wanted -= texts.sizes[text]
            chosen.append(text)
            sets.append(has ^ (np.arange(len(has)) == label))
    positions = texts.first[np.array(chosen, np.int64)]
    return positions, np.array(sets, np.uint8).reshape(len(positions), labels.shape[1])


class Texts:
    """The texts of rows: `first` (num_texts,) row of each, `sizes` (num_texts,) rows; `agreed` are those
    whose rows have equal labels.

    `labels` as `set_ids` takes them.
    """

    def __init__(self, labels: np.ndarray, hashes: np.ndarray) -> None:
        self.first, order, starts = text_groups(hashes)
        self.sizes = np.diff(starts)
        ids = set_ids(labels)
        differs = ids[order] != np.repeat(ids[self.first], self.sizes)
        self.agreed = np.flatnonzero(~np.logical_or.reduceat(differs, starts[:-1]))


def may_change(counts: np.ndarray) -> np.ndarray:
    """Return how many texts each label may lose, or get, of `counts` (num_labels,) texts that have it."""
    return np.where(counts > SMALL_CLASS, counts // 2, 0)


@dataclass(frozen=True)
class PlantedResult:
    """How many of `planted` flipped rows among `rows` are in the first `planted` places of the ranking:
    `found`; and in the first half as many places: `found_in_half`.
    """

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


def measure_planted(order: np.ndarray, is_planted: np.ndarray) -> PlantedResult:
    """Return how well a ranking finds the rows that `is_planted`, (num_rows,) bool; `order` as in
    `LabelIssues`."""
    planted = int(is_planted.sum())
    found, half = (int(is_planted[order[:places]].sum()) for places in (planted, max(1, planted // 2)))
    return PlantedResult(len(is_planted), planted, found, half if planted else 0)
