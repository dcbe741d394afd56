"""Texts with labels, which are read when they are needed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..data.dataset import Split

# Of a text that a baseline reads
MAX_CHARACTERS = 256


@dataclass(frozen=True)
class Texts:
    """Texts with `labels`, (num_rows, ...) as their outcome has them; `read` returns those at positions, the
    two texts of a pair as one, and `read_pairs` the pairs (None: there are none)."""

    labels: np.ndarray
    read: Callable[[np.ndarray], list[str]]
    read_pairs: Callable[[np.ndarray], list[tuple[str, str]]] | None = None

    def positions(self, max_rows: int, seed: int = 0) -> np.ndarray:
        """Return the positions of at most `max_rows` rows, drawn at random, increasing."""
        positions = np.arange(len(self.labels))
        if len(positions) > max_rows:
            positions = np.sort(np.random.default_rng(seed).choice(positions, max_rows, replace=False))
        return positions

    def sample(self, max_rows: int) -> tuple[list[str], np.ndarray]:
        """Return the texts and labels of at most `max_rows` rows, drawn at random."""
        positions = self.positions(max_rows)
        return [text[:MAX_CHARACTERS] for text in self.read(positions)], self.labels[positions]

    def sample_pairs(self, max_rows: int) -> tuple[list[str], list[str]]:
        """Return the first and the second texts of the rows of `sample`, of pairs."""
        pairs = self.read_pairs(self.positions(max_rows))
        return tuple([text[:MAX_CHARACTERS] for text in texts] for texts in zip(*pairs, strict=True))


def split_texts(split: Split) -> Texts:
    """Return the texts of a split; the two texts of a pair as one."""

    rows, table = np.asarray(split.rows), split.table
    return Texts(
        np.asarray(split.labels),
        lambda positions: table.joined_texts(rows[positions]),
        (lambda positions: table.texts(rows[positions])) if table.has_pairs else None,
    )
