"""What it costs that long texts are not read whole: the accuracy of such rows, beside that of all others."""

from __future__ import annotations

import numpy as np

from ..data.tokens import TokenStore
from .measures.selective import proportion_interval

NAMES = {
    "whole": "read whole",
    "several_windows": "read whole, in several windows",
    "not_whole": "not read whole",
}


def row_parts(store: TokenStore, rows: np.ndarray) -> np.ndarray:
    """Return how each of the rows, (num_rows,) ids, was read: its index in `NAMES`, (num_rows,) int64."""
    return parts_read(
        store.cut[rows],
        store.first_windows[rows + 1] - store.first_windows[rows] if store.has_windows else None,
    )


def parts_read(cut: np.ndarray, windows: np.ndarray | None) -> np.ndarray:
    """Return what `row_parts` does; `cut` (num_rows,) is whether tokens were left out, `windows` (num_rows,)
    None for one each."""
    several = np.zeros(len(cut), dtype=bool) if windows is None else windows > 1
    return np.where(cut > 0, 2, several.astype(np.int64))


def cost_of_length(parts: np.ndarray, right: np.ndarray, way: str, max_length: int) -> dict:
    """Return rows, accuracy and its 95 % Clopper-Pearson interval, by the names of `NAMES`; nothing where all
    rows fit.

    `parts` (num_rows,) of `row_parts`, `right` (num_rows,) bool whether each row was classified right; `way`
    and `max_length` are the settings.
    """
    if not parts.any():
        return {}
    found: dict = {"long": way, "max_length": max_length}
    for index, name in enumerate(NAMES):
        of_part = right[parts == index]
        if len(of_part):
            count, total = int(of_part.sum()), len(of_part)
            found[name] = {
                "rows": total,
                "accuracy": count / total,
                "interval": list(proportion_interval(count, total)),
            }
    return found


def render_cost_of_length(found: dict) -> str:
    """Return lines for people, of `cost_of_length`."""
    lines = [f"Accuracy by what was read (data.long {found['long']}, data.max_length {found['max_length']})"]
    for name, description in NAMES.items():
        if name in found:
            figures = found[name]
            low, high = figures["interval"]
            lines.append(
                f"  {description:30} {figures['accuracy']:.4f}   {low:.4f} to {high:.4f}   "
                f"{figures['rows']:,} rows"
            )
    return "\n".join(lines)
