"""The rows of each step, and the tensors of a batch. Here: batches of limited size, without torch, which an
exported model does not need."""

import numpy as np

CPU_BATCH_TOKENS = 1024  # without gradients: larger batches do not fit into the caches of the cores
BATCH_TOKENS = 32768  # on other devices


def limited_batches(rows: np.ndarray, sizes: np.ndarray, max_size: int, padded: bool) -> list[np.ndarray]:
    """Return `rows`, (num_rows,), longest first, in batches of at most `max_size`, or of a single row; at
    least one batch. `sizes`: of each row its tokens or windows, at least 1; where batches are `padded`, each
    row counts as much as the longest of its batch."""
    batches = []
    while len(rows):
        # Every row has a token, so no batch has more rows than `max_size`
        row_sizes = sizes[rows[:max_size]]
        if padded:
            batch_sizes = np.arange(1, len(row_sizes) + 1) * row_sizes[0]
        else:
            batch_sizes = np.cumsum(row_sizes)
        num_rows = max(1, int(np.searchsorted(batch_sizes, max_size, side="right")))
        batches.append(rows[:num_rows])
        rows = rows[num_rows:]
    return batches or [rows]


def token_batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Return batches of indices into `lengths`, (num_rows,) tokens: similar lengths together, longest first.
    A batch has at most `batch_tokens`, counted as rows x longest row, or is a single row."""
    longest_first = np.argsort(-lengths, kind="stable")
    return limited_batches(longest_first, lengths, batch_tokens, padded=True)
