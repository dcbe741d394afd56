"""What the page needs to know of each evaluated row, and what the rows of one kind have in common."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data.dataset import Split
from ...data.tokens import TokenStore
from ..long_rows import row_readings
from ..measures.selective import proportion_interval

LENGTH_BINS = 6
# Shares of unknown tokens; the last bin has no upper edge
UNKNOWN_EDGES = (0.0, 0.02, 0.1)


@dataclass(frozen=True)
class EvaluatedRows:
    """Rows with the scores of an outcome; arrays are (num_rows,), None where it is not known.

    `text` and `where` return the text, and the file and line, of the row at a position. `lengths` are in
    tokens, `unknown` is the share of unknown tokens, `seen` whether the text is a training text: 0 no, 1
    nearly, 2 exactly; `readings` is what was read of it (`row_readings`). `evidence` returns the nearest
    training rows of the row at a position: `similarity`, `label`, `text`, `where`.
    """

    scores: Any
    label_names: list[str]
    text: Callable[[int], str]
    where: Callable[[int], str]
    lengths: np.ndarray | None = None
    unknown: np.ndarray | None = None
    seen: np.ndarray | None = None
    readings: np.ndarray | None = None
    evidence: Callable[[int], list[dict]] = lambda at: []


def rows_of_split(
    split: Split,
    train: Split,
    store: TokenStore,
    unknown_id: int | None,
    scores: Any,
    label_names: list[str],
) -> EvaluatedRows:
    """Return the rows of a split with their `scores`; `store` has the tokens of its table."""
    rows = np.asarray(split.rows)
    seen = None
    if split.name != train.name:
        seen = seen_in_train(split, train)
    lengths = store.offsets[rows + 1] - store.offsets[rows]

    def text(position: int) -> str:
        pair = split.table.pair(rows[position])
        return split.table.text(rows[position]) + ("" if pair is None else f" ⟷ {pair}")

    def where(position: int) -> str:
        where = split.table.where(rows[position])
        return where.removeprefix(f"{Path.cwd()}{os.sep}")

    unknown = None if unknown_id is None else unknown_counts(store, rows, unknown_id) / lengths
    return EvaluatedRows(scores, label_names, text, where, lengths, unknown, seen, row_readings(store, rows))


def seen_in_train(split: Split, train: Split) -> np.ndarray:
    """Return whether the text of each row is in train: 0 no, 1 nearly, 2 exactly, (num_rows,) int64."""
    is_same = np.isin(split.table.hashes[np.asarray(split.rows)], train.table.hashes[train.rows])
    is_near = 0 if split.copies is None else np.asarray(split.copies) >= 0
    return np.where(is_same, 2, is_near)


def unknown_counts(store: TokenStore, rows: np.ndarray, unknown_id: int) -> np.ndarray:
    """Return how many tokens of each row, (num_rows,) ids, are the unknown one."""
    ends = zip(store.offsets[rows], store.offsets[rows + 1], strict=True)
    return np.array([(store.tokens[start:end] == unknown_id).sum() for start, end in ends])


@dataclass(frozen=True)
class Group:
    """Rows of one kind: how many, how many right, and the 95 % Clopper-Pearson interval of their accuracy."""

    name: str
    rows: int
    right: int

    @property
    def accuracy(self) -> float:
        return self.right / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        return proportion_interval(self.right, self.rows)


def groups_by_length(rows: EvaluatedRows) -> list[Group]:
    """Return groups of about equally many rows, by length in tokens."""
    if rows.lengths is None:
        return []
    edges = np.unique(np.quantile(rows.lengths, np.linspace(0, 1, LENGTH_BINS + 1)[1:], method="higher"))
    names, low = [], int(rows.lengths.min())
    for edge in map(int, edges):
        names.append(f"{low}–{edge}" if low < edge else f"{edge}")
        low = edge + 1
    return _groups(names, np.searchsorted(edges, rows.lengths), rows.scores.correct)


def groups_by_unknown(rows: EvaluatedRows) -> list[Group]:
    """Return groups by the share of tokens that the vocabulary does not know."""
    if rows.unknown is None:
        return []
    percent = [f"{edge * 100:g} %" for edge in UNKNOWN_EDGES]
    between = [f"{low} – {high}" for low, high in zip(percent, percent[1:], strict=False)]
    names = [percent[0], *between, f"> {percent[-1]}"]
    return _groups(names, np.searchsorted(UNKNOWN_EDGES, rows.unknown), rows.scores.correct)


def groups_by_seen(rows: EvaluatedRows, names: list[str]) -> list[Group]:
    """Return the rows by whether their text is in train: not, nearly, exactly, under these names."""
    return [] if rows.seen is None else _groups(names, rows.seen, rows.scores.correct)


def groups_by_reading(rows: EvaluatedRows, names: list[str]) -> list[Group]:
    """Return the rows by what was read of their texts, under these names, of `row_readings`."""
    return [] if rows.readings is None else _groups(names, rows.readings, rows.scores.correct)


def _groups(names: list[str], group_of_row: np.ndarray, correct: np.ndarray) -> list[Group]:
    counts = np.bincount(group_of_row, minlength=len(names))
    right = np.bincount(group_of_row, weights=correct, minlength=len(names))
    return [Group(name, int(n), int(r)) for name, n, r in zip(names, counts, right, strict=True) if n]
