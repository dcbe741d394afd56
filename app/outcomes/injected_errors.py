"""Injected errors: labels changed on purpose, to measure how many a list of label issues finds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..data.multi_label_split import label_list_ids
from ..data.splits import text_groups
from ..evaluation.measures.selective import proportion_interval

# Texts of a class that stay as they are: a class must not disappear from train
SMALL_CLASS = 10


def inject_class_errors(
    labels: np.ndarray, hashes: np.ndarray, num_labels: int, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of rows to change, one for each chosen text, and the wrong class ids they get, both
    (num_errors,).

    `labels` and `hashes` are (num_rows,). About `fraction` of the rows get any other label with the same
    probability; all rows of a text together. A text with conflicting labels is left out, and no class loses
    more than half of its texts.
    """
    generator = np.random.default_rng(seed)
    texts = LabelledTexts(labels, hashes)
    of_text = labels[texts.first]
    left = may_change(np.bincount(of_text, minlength=num_labels))

    def change(text: int) -> bool:
        can_change = left[of_text[text]] > 0
        left[of_text[text]] -= can_change
        return can_change

    positions = texts.choose(fraction, generator, change)
    wrong = generator.integers(0, num_labels - 1, len(positions))
    return positions, wrong + (wrong >= labels[positions])


def inject_list_errors(
    labels: np.ndarray, hashes: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of rows to change, one for each chosen text, (num_errors,), and the labels they get,
    (num_errors, num_labels) uint8.

    `labels` (num_rows, num_labels) are 0 and 1. In about `fraction` of the rows one label is added or
    removed, which of the two by chance; all rows of a text together. No label gets or loses more than half as
    many texts as it has, and no row gets fewer or more labels than rows of the data have. A text with
    conflicting labels is left out.
    """
    generator = np.random.default_rng(seed)
    texts = LabelledTexts(label_list_ids(labels), hashes)
    of_text = labels[texts.first].astype(bool)
    to_add, to_remove = (may_change(of_text.sum(axis=0, dtype=np.int64)) for _ in range(2))
    sizes = of_text.sum(axis=1)
    fewest, most = sizes.min(), sizes.max()
    wrong = []

    def change(text: int) -> bool:
        has = of_text[text]
        changes = (
            (to_add, ~has & (to_add > 0) & (has.sum() < most)),
            (to_remove, has & (to_remove > 0) & (has.sum() > fewest)),
        )
        changes = [(left, np.flatnonzero(can_change)) for left, can_change in changes if can_change.any()]
        if not changes:
            return False
        left, candidates = changes[generator.integers(len(changes))]
        label = generator.choice(candidates)
        left[label] -= 1
        wrong.append(has ^ (np.arange(len(has)) == label))
        return True

    positions = texts.choose(fraction, generator, change)
    return positions, np.array(wrong, np.uint8).reshape(len(positions), labels.shape[1])


class LabelledTexts:
    """The texts of rows: `first` (num_texts,) row of each, `sizes` (num_texts,) rows; `agreed` are those
    whose rows have equal labels, and so equal `ids` (num_rows,).
    """

    def __init__(self, ids: np.ndarray, hashes: np.ndarray) -> None:
        self.first, order, starts = text_groups(hashes)
        self.sizes = np.diff(starts)
        differs = ids[order] != np.repeat(ids[self.first], self.sizes)
        self.agreed = np.flatnonzero(~np.logical_or.reduceat(differs, starts[:-1]))
        self.num_rows = len(ids)

    def choose(
        self, fraction: float, generator: np.random.Generator, change: Callable[[int], bool]
    ) -> np.ndarray:
        """Return the first row of each chosen text, (num_chosen,), of texts in random order. They are about
        `fraction` of the rows. `change` says whether a text can be changed, and counts it."""
        chosen, wanted = [], fraction * self.num_rows
        for text in generator.permutation(self.agreed):
            if wanted < self.sizes[text] / 2:
                break
            if change(text):
                wanted -= self.sizes[text]
                chosen.append(text)
        return self.first[np.array(chosen, np.int64)]


def may_change(counts: np.ndarray) -> np.ndarray:
    """Return how many texts each label may lose, or get, of `counts` (num_labels,) texts that have it."""
    return np.where(counts > SMALL_CLASS, counts // 2, 0)


@dataclass(frozen=True)
class InjectedErrors:
    """How many of `injected` errors among `rows` are in the first `injected` places of the ranking: `found`;
    and in the first half as many places: `found_in_half`.
    """

    rows: int
    injected: int
    found: int
    found_in_half: int

    @property
    def precision(self) -> float:
        """The fraction of the first `injected` places that are injected errors."""
        return self.found / max(1, self.injected)

    @property
    def random(self) -> float:
        """The precision of a random order."""
        return self.injected / max(1, self.rows)

    def to_dict(self) -> dict:
        """Return the figures as JSON has them."""
        half = max(1, self.injected // 2)
        return {
            "rows": self.rows,
            "k": self.injected,
            "found": self.found,
            "precision_at_k": self.precision,
            "interval": list(proportion_interval(self.found, self.injected)) if self.injected else None,
            "half_k": half,
            "precision_at_half_k": self.found_in_half / half,
            "random": self.random,
        }


def measure_injected(order: np.ndarray, is_injected: np.ndarray) -> InjectedErrors:
    """Return how well a ranking finds injected errors, (num_rows,) bool; `order` as in `LabelIssues`."""
    injected = int(is_injected.sum())
    found, half = (int(is_injected[order[:places]].sum()) for places in (injected, max(1, injected // 2)))
    return InjectedErrors(len(is_injected), injected, found, half if injected else 0)
