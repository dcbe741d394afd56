"""The keys of dropout: of each token a number that depends on seed, step, row and position alone.

The masks of dropout are computed from them (`app.model.random_masks`), so they are the same on one device or
on eight, whatever is in a micro-batch beside the row, and however the batch is padded or packed.
"""

from dataclasses import dataclass

import numpy as np

# SplitMix64: https://doi.org/10.1145/2660193.2660195, which passes BigCrush
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class StepMasks:
    """What the masks of a step depend on, apart from rows: R-Drop trains `copies` of each row in a step."""

    seed: int
    step: int
    copies: int = 1


def mixed(key: np.ndarray, number: np.ndarray | int) -> np.ndarray:
    """Return keys (any,) uint64 for keys and numbers from 0 on, of shapes that broadcast; equal keys with
    different numbers never give equal keys."""
    # An array, because NumPy warns of scalars that wrap around
    number = np.atleast_1d(number).astype(np.uint64)
    mixed_key = key + GOLDEN * (number + np.uint64(1))
    mixed_key = (mixed_key ^ (mixed_key >> np.uint64(30))) * FIRST_FACTOR
    mixed_key = (mixed_key ^ (mixed_key >> np.uint64(27))) * SECOND_FACTOR
    return mixed_key ^ (mixed_key >> np.uint64(31))


@dataclass(frozen=True)
class RowKeys:
    """The key of each row, (num_rows,) uint64, and the one of the step, for what all rows share."""

    rows: np.ndarray
    step: int


def keys_of_rows(
    masks: StepMasks, rows: np.ndarray, copies: np.ndarray | int = 0, windows: np.ndarray | int = 0
) -> RowKeys:
    """Return the keys of rows: `rows` (num_rows,) are ids in the table, `copies` and `windows` count those of
    a row from 0."""
    step_key = mixed(np.array([masks.seed], dtype=np.uint64), masks.step)
    keys = step_key
    for number in (rows, copies, windows):
        keys = mixed(keys, number)
    return RowKeys(keys, int(step_key[0]))


def keys_of_tokens(row_keys: np.ndarray, row_of_token: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the key of each token, (num_tokens,) int64, from the row that it is in, and its position there.

    So keys of 64 bits are as good as random: that two of n tokens of a run share one has the probability
    n^2 / 2^65, which is 3e-6 for 10 million tokens. The tokens of one row never do.
    """
    return mixed(row_keys[row_of_token], positions).view(np.int64)
