"""The rows of each step, and the tensors of a batch. Here: batches within a number of tokens, without torch,
which an exported model does not need."""

import numpy as np

CPU_BATCH_TOKENS = 1024  # without gradients: larger batches do not fit into the caches of the cores
BATCH_TOKENS = 32768  # on other devices


def cut(rows: np.ndarray, lengths: np.ndarray, most: int, padded: bool) -> list[np.ndarray]:
    """Return rows, (num_rows,), longest first, in parts of at most `most` tokens, or of a single row; at
    least one part. Where batches are `padded`, padding counts too. `lengths` has the tokens of each row."""
    parts = []
    while len(rows):
        # Every row has a token, so no part has more rows than `most`
        first = lengths[rows[:most]]
        counted = np.arange(1, len(first) + 1) * first[0] if padded else np.cumsum(first)
        count = max(1, int(np.searchsorted(counted, most, side="right")))
        parts.append(rows[:count])
        rows = rows[count:]
    return parts or [rows]


def token_batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Return batches of indices into `lengths`, (num_rows,) tokens: similar lengths together, longest first.
    A batch has at most `batch_tokens`, counted as rows x longest row, or is a single row."""
    return cut(np.argsort(-lengths, kind="stable"), lengths, batch_tokens, padded=True)
