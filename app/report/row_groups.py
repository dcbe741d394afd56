"""Groups of rows, and how many rows of each are right: by length, by what was read of a text, and by whether
it is a training text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..words import N_, _
from .confidence import proportion_interval

LENGTH_BINS = 6
# How a text was read, and its name; `row_readings` are positions in this table
READINGS = {
    "whole": N_("read whole"),
    "several_windows": N_("read whole, in several windows"),
    "not_whole": N_("not read whole"),
}
WHOLE, SEVERAL_WINDOWS, NOT_WHOLE = range(len(READINGS))
# Whether a text is in train
NEW, NEAR_COPY, COPY = range(3)


def row_readings(store: TokenStore, rows: np.ndarray) -> np.ndarray:
    """Return how each of the rows, (num_rows,) ids, was read: its position in `READINGS`, (num_rows,)."""
    num_windows: np.ndarray | int = 1
    if store.has_windows:
        num_windows = store.first_windows[rows + 1] - store.first_windows[rows]
    return readings_of(store.cut[rows], num_windows)


def readings_of(num_cut: np.ndarray, num_windows: np.ndarray | int) -> np.ndarray:
    """Return `row_readings` from how many tokens of each row were left out, and its number of windows."""
    is_in_several = np.greater(num_windows, 1)
    return np.where(num_cut > 0, NOT_WHOLE, np.where(is_in_several, SEVERAL_WINDOWS, WHOLE))


def cost_of_length(readings: np.ndarray, correct: np.ndarray, long: str, max_length: int) -> dict:
    """Return the settings of long texts, and how many rows are right by `row_readings`; nothing where all
    rows fit."""
    if not readings.any():
        return {}
    settings = {"long": long, "max_length": max_length}
    return settings | right_by_group(list(READINGS), readings, correct)


def right_by_group(names: Sequence[str], groups: np.ndarray, correct: np.ndarray) -> dict[str, dict]:
    """Return rows, accuracy and its 95 % Clopper-Pearson interval of each group that has rows, by its name;
    `groups`, (num_rows,), are positions in `names`."""
    figures = {}
    for group in np.unique(groups).tolist():
        correct_of_group = correct[groups == group]
        num_rows = len(correct_of_group)
        low, high = proportion_interval(int(correct_of_group.sum()), num_rows)
        figures[names[group]] = {
            "rows": num_rows,
            "accuracy": float(correct_of_group.mean()),
            "interval": [low, high],
        }
    return figures


def row_groups(
    correct: np.ndarray, lengths: np.ndarray, readings: np.ndarray, seen: np.ndarray | None
) -> dict[str, dict]:
    """Return `right_by_group`, by what the rows are grouped by; without groupings that have one group only.
    `lengths` are in tokens, `readings` of `row_readings`, and `seen` of `seen_in_train`, (num_rows,) each."""
    length_names, length_groups = groups_of_length(lengths)
    reading_names = [_(name) for name in READINGS.values()]
    groupings = {
        _("by length in tokens"): right_by_group(length_names, length_groups, correct),
        _("by what was read of the text"): right_by_group(reading_names, readings, correct),
    }
    if seen is not None:
        seen_names = [_("new text"), _("near copy of a training text"), _("also in train")]
        by_seen = right_by_group(seen_names, seen, correct)
        groupings[_("by whether the text is a training text")] = by_seen
    return {title: groups for title, groups in groupings.items() if len(groups) > 1}


def groups_of_length(lengths: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the names of groups of about equally many rows, such as 3–12, and the group of each row."""
    quantiles = np.linspace(0, 1, LENGTH_BINS + 1)[1:]
    highest = np.unique(np.quantile(lengths, quantiles, method="higher")).astype(int)
    names = []
    low = int(lengths.min())
    for high in highest.tolist():
        names.append(f"{low}–{high}" if low < high else f"{high}")
        low = high + 1
    return names, np.searchsorted(highest, lengths)


def seen_in_train(split: Split, train: Split) -> np.ndarray:
    """Return whether the text of each row is in train: NEW, NEAR_COPY or COPY, (num_rows,) int64."""
    is_same = np.isin(split.table.hashes[np.asarray(split.rows)], train.table.hashes[train.rows])
    is_near = np.zeros(len(is_same), bool)
    if split.copies is not None:
        is_near = np.asarray(split.copies) >= 0
    return np.where(is_same, COPY, np.where(is_near, NEAR_COPY, NEW))
