"""Whether an evaluation has seen every row exactly once."""

from __future__ import annotations

import numpy as np


def check_rows(positions: np.ndarray, num_rows: int, split: str) -> None:
    """Raise RuntimeError unless `positions`, int64, holds each row position from 0 to num_rows - 1 exactly
    once."""
    counts = np.bincount(positions, minlength=num_rows) if len(positions) else np.zeros(num_rows, int)
    if len(counts) != num_rows or (counts != 1).any():
        missing, repeated = int((counts[:num_rows] == 0).sum()), int((counts > 1).sum())
        raise RuntimeError(
            f"every row of {split} must be evaluated exactly once; of {num_rows:,} rows {missing:,} are "
            f"missing and {repeated:,} repeated, so there is no report"
        )
