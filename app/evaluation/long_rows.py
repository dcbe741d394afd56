"""Accuracy of rows whose text was not read whole, beside that of all others."""

import numpy as np

from ..data.tokens import TokenStore
from ..words import N_, _
from .measures.selective import proportion_interval
from .text_table import columns_of

NAMES = {
    "whole": N_("read whole"),
    "several_windows": N_("read whole, in several windows"),
    "not_whole": N_("not read whole"),
}


def row_readings(store: TokenStore, rows: np.ndarray) -> np.ndarray:
    """Return how each of the rows, (num_rows,) ids, was read: its index in `NAMES`, (num_rows,) int64."""
    return readings_of(
        store.cut[rows],
        store.first_windows[rows + 1] - store.first_windows[rows] if store.has_windows else None,
    )


def readings_of(cut: np.ndarray, windows: np.ndarray | None) -> np.ndarray:
    """Return `row_readings` of whether tokens were left out, `cut`, and the `windows` of each row, if any."""
    several = np.zeros(len(cut), dtype=bool) if windows is None else windows > 1
    return np.where(cut > 0, 2, several.astype(np.int64))


def cost_of_length(readings: np.ndarray, right: np.ndarray, way: str, max_length: int) -> dict:
    """Return rows, accuracy and its 95 % Clopper-Pearson interval by the names of `NAMES`; nothing where all
    rows fit. `readings` (num_rows,) of `row_readings`; `right` (num_rows,) bool; the settings."""
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


def render_cost_of_length(accuracies: dict, metric: str = "Accuracy") -> str:
    """Return lines for people, of `cost_of_length`; `metric` is what accuracies are called."""
    heading = _("{metric} by what was read (data.long {long}, data.max_length {max_length})")
    lines = [heading.format(metric=metric, long=accuracies["long"], max_length=accuracies["max_length"])]
    for key, name in NAMES.items():
        if key in accuracies:
            of_rows, (low, high) = accuracies[key], accuracies[key]["interval"]
            padded = _(name) + " " * (30 - columns_of(_(name)))
            line = _("  {reading} {accuracy:.4f}   {low:.4f} to {high:.4f}   {rows:,} rows")
            values = {"accuracy": of_rows["accuracy"], "rows": of_rows["rows"]}
            lines.append(line.format(reading=padded, low=low, high=high, **values))
    return "\n".join(lines)
