"""The few shapes to which packed batches are filled up with padding, because a recorded CUDA graph fits one
shape only.

Where the sizes of all batches are known before the training, `choose_buckets` chooses shapes that fit them.
The size of any other batch is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# The tokens of a rounded batch are a multiple of at least this
FILL_TO = 32
# The tokens of a bucket are a multiple of this
BUCKET_TO = 64
# `longest` of a filled batch is rounded up to a multiple of this, so that it has few values
ROUND_LONGEST_TO = 128
# Buckets for batches with the same number of rows; 0: no buckets, all batches are rounded
MOST = 8
RECORDING = (
    # Batches that are computed in the time of a recording, an estimate; a bucket more must save so much
    # padding
    25
)


@dataclass(frozen=True)
class Bucket:
    """A shape of batches with `rows` rows: with a row of padding they have `tokens` tokens, and no row above
    `longest`."""

    rows: int
    tokens: int
    longest: int

    def fits(self, rows: int, tokens: int, longest: int) -> bool:
        """Return whether a batch of so many rows and tokens, the longest row of `longest`, can be filled up
        to this shape."""
        return (
            rows == self.rows and tokens < self.tokens and max(longest, self.tokens - tokens) <= self.longest
        )


def filled_shape(rows: int, tokens: int, longest: int, buckets: tuple[Bucket, ...]) -> tuple[int, int]:
    """Return how many tokens a batch has with its row of padding, at least one more than before, and what to
    take for `longest`.

    They are those of the first bucket that fits; where none does, both are rounded up.
    """
    for bucket in buckets:
        if bucket.fits(rows, tokens, longest):
            return bucket.tokens, bucket.longest
    filled = filled_tokens(tokens)
    return filled, rounded_longest(max(longest, filled - tokens))


def filled_tokens(tokens: int) -> int:
    """Return the next number above `tokens` that a rounded batch may have: at most eight from one power of 2
    to the next."""
    step = max(FILL_TO, (1 << tokens.bit_length() - 1) // 8)
    return (tokens // step + 1) * step


def rounded_longest(longest: int) -> int:
    """Return the next value that `longest` of a filled batch may have."""
    return -(-longest // ROUND_LONGEST_TO) * ROUND_LONGEST_TO


def choose_buckets(rows: np.ndarray, tokens: np.ndarray, longest: np.ndarray) -> dict[Bucket, int]:
    """Return shapes that fit all batches with little padding, fewest rows and tokens first, each with the
    index of a batch in it.

    `rows`, `tokens`, `longest`, each (num_batches,) int64: the rows and the tokens of each batch, and those
    of its longest row.
    """
    buckets = {}
    for num_rows in np.unique(rows):
        alike = np.flatnonzero(rows == num_rows)
        sizes = few_sizes(tokens[alike])
        size_of = np.searchsorted(sizes, tokens[alike], side="right")
        for index, size in enumerate(sizes.tolist()):
            members = alike[size_of == index]
            most = max(int(longest[members].max()), size - int(tokens[members].min()))
            buckets[Bucket(int(num_rows), size, rounded_longest(most))] = int(members[0])
    return buckets


def few_sizes(tokens: np.ndarray) -> np.ndarray:
    """Return sizes, ascending, to which batches of `tokens` (num_batches,) are filled up: recordings and
    padding cost least.

    So a long training gets more sizes than a short one.
    """
    return min(best_sizes(tokens, MOST), key=lambda sizes: cost(sizes, tokens), default=np.empty(0, np.int64))


def cost(sizes: np.ndarray, tokens: np.ndarray) -> float:
    """Return what `sizes` cost for batches of `tokens`, (num_batches,): padding, and their recordings as so
    many tokens."""
    padding = sizes[np.searchsorted(sizes, tokens, side="right")] - tokens
    return padding.sum() + len(sizes) * RECORDING * tokens.mean()


def best_sizes(tokens: np.ndarray, most: int) -> list[np.ndarray]:
    """Return one size, two, and so on up to `most`, as far as there are so many: those that take the least
    padding.

    `tokens` are (num_batches,). Sizes are multiples of `BUCKET_TO`, ascending, and each batch is filled up to
    the next size above its own. The least padding with one size more is found from the least padding of the
    smallest batches with one less.
    """
    values, counts = np.unique((tokens // BUCKET_TO + 1) * BUCKET_TO, return_counts=True)
    # Batches smaller than each value
    before = np.append(0, np.cumsum(counts))
    ends = range(1, len(values) + 1)
    # Filled tokens of the batches before each value
    least = np.append(0.0, np.full(len(values), np.inf))
    starts, choices = [], []
    for _ in range(min(most, len(values))):
        # The last size is values[end - 1]; it takes the batches from `start` on.
        totals = (least[:end] + (before[end] - before[:end]) * values[end - 1] for end in ends)
        found = [(int(total.argmin()), total.min()) for total in totals]
        starts.append([start for start, _ in found])
        least = np.append(np.inf, [total for _, total in found])
        choices.append(values[last_places(starts)])
    return choices


def last_places(starts: list[list[int]]) -> list[int]:
    """Return the place of each size, ascending; `starts[n][end - 1]` is where the last of n + 1 sizes begins
    for batches before `end`."""
    places, end = [], len(starts[0])
    for start in reversed(starts):
        places.append(end - 1)
        end = start[end - 1]
    return places[::-1]
