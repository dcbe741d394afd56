"""Texts with labels, which are read when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..data.dataset import Split

# Of a text that a baseline reads
MAX_CHARACTERS = 256


@dataclass(frozen=True)
class Texts:
    """Texts with `labels`, class ids (num_rows,) or 0 and 1 (num_rows, num_labels); `read` returns those at
    increasing positions."""

    labels: np.ndarray
    read: Callable[[np.ndarray], list[str]]

    def sample(self, max_rows: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
        """Return the texts and labels of at most `max_rows` rows, drawn at random."""
        positions = np.arange(len(self.labels))
        if len(positions) > max_rows:
            positions = np.sort(np.random.default_rng(seed).choice(positions, max_rows, replace=False))
        return [text[:MAX_CHARACTERS] for text in self.read(positions)], self.labels[positions]


def split_texts(split: Split) -> Texts:
    """Return the texts of a split; the two texts of a pair as one."""

    rows = np.asarray(split.rows)
    return Texts(
        np.asarray(split.labels, np.int64), lambda positions: split.table.joined_texts(rows[positions])
    )
