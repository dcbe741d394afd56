"""Accuracy of rows whose text was not read whole, beside that of all others."""

from __future__ import annotations

import numpy as np

from ..data.tokens import TokenStore
from .measures.selective import proportion_interval

NAMES = {
    "whole": "read whole",
    "several_windows": "read whole, in several windows",
    "not_whole": "not read whole",
}


def row_readings(store: TokenStore, rows: np.ndarray) -> np.ndarray:
    """Return how each of the rows, (num_rows,) ids, was read: its index in `NAMES`, (num_rows,) int64."""
    return readings_of(
        store.cut[rows],
        store.first_windows[rows + 1] - store.first_windows[rows] if store.has_windows else None,
    )


def readings_of(cut: np.ndarray, windows: np.ndarray | None) -> np.ndarray:
    """Return what `row_readings` does; `cut` (num_rows,) is whether tokens were left out, `windows`
    (num_rows,) None for one each."""
    several = np.zeros(len(cut), dtype=bool) if windows is None else windows > 1
    return np.where(cut > 0, 2, several.astype(np.int64))


def cost_of_length(readings: np.ndarray, right: np.ndarray, way: str, max_length: int) -> dict:
    """Return rows, accuracy and its 95 % Clopper-Pearson interval, by the names of `NAMES`; nothing where all
    rows fit.

    `readings` (num_rows,) of `row_readings`, `right` (num_rows,) bool whether each row was classified right;
    `way` and `max_length` are the settings.
    """
    if not readings.any():
        return {}
    accuracies: dict = {"long": way, "max_length": max_length}
    for index, name in enumerate(NAMES):
        of_reading = right[readings == index]
        if len(of_reading):
            count, total = int(of_reading.sum()), len(of_reading)
            accuracies[name] = {
                "rows": total,
                "accuracy": count / total,
                "interval": list(proportion_interval(count, total)),
            }
    return accuracies


def render_cost_of_length(accuracies: dict) -> str:
    """Return lines for people, of `cost_of_length`."""
    settings = f"data.long {accuracies['long']}, data.max_length {accuracies['max_length']}"
    lines = [f"Accuracy by what was read ({settings})"]
    for name, description in NAMES.items():
        if name in accuracies:
            of_rows = accuracies[name]
            low, high = of_rows["interval"]
            lines.append(
                f"  {description:30} {of_rows['accuracy']:.4f}   {low:.4f} to {high:.4f}   "
                f"{of_rows['rows']:,} rows"
            )
    return "\n".join(lines)
