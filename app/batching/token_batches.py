"""Rows of similar length together, in batches that are not of one size; torch is not imported."""

from __future__ import annotations

import numpy as np


def token_batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Return batches of indices into `lengths`, (num_rows,) tokens: rows of similar length together, longest
    first.

    A batch has at most `batch_tokens` tokens, counted as rows x longest row, or is a single row.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        count = max(1, batch_tokens // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + count])
        start += count
    return batches
