"""Accuracy of rows whose text was not read whole, beside that of all others."""

import numpy as np

from ..data.tokens import TokenStore
from .measures.selective import proportion_interval
from .text_table import columns_of

# In English and Chinese
NAMES = {
    "whole": ("read whole", "读完整的"),
    "several_windows": ("read whole, in several windows", "分几个窗口读完整的"),
    "not_whole": ("not read whole", "没有读完整的"),
}
LINES = {
    "heading": (
        "{2} by what was read (data.long {0}, data.max_length {1})",
        "按读到多少分的{2}（data.long {0}，data.max_length {1}）",
    ),
    "line": (
        "  {0} {1:.4f}   {2:.4f} to {3:.4f}   {4:,} rows",
        "  {0} {1:.4f}   {2:.4f} 到 {3:.4f}   {4:,} 行",
    ),
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


def render_cost_of_length(accuracies: dict, metric: str = "Accuracy", language: str = "en") -> str:
    """Return lines for people, of `cost_of_length`; `metric` is what accuracies are called."""
    at = int(language == "zh")
    lines = [LINES["heading"][at].format(accuracies["long"], accuracies["max_length"], metric)]
    for name, descriptions in NAMES.items():
        if name in accuracies:
            of_rows, description = accuracies[name], descriptions[at]
            padded = description + " " * (30 - columns_of(description))
            values = padded, of_rows["accuracy"], *of_rows["interval"], of_rows["rows"]
            lines.append(LINES["line"][at].format(*values))
    return "\n".join(lines)
