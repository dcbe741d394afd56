"""The batch plan: which rows are in which step, as a pure function of (num_rows, batch_size, seed, step). So
all modes see the same global batches, and resuming needs only the number of the next step."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

CPU_BATCH_TOKENS = 1024  # without gradients: larger batches do not fit into the caches of the cores
BATCH_TOKENS = 32768  # on other devices


@dataclass(frozen=True)
class BatchPlan:
    """Global batches of row positions; the last of an epoch may be smaller."""

    num_rows: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def batch(self, step: int) -> np.ndarray:
        """Return the row positions, (<= batch_size,) int64, of global batch `step`, from 0 on."""
        epoch, index = divmod(step, self.steps_per_epoch)
        order = epoch_order(self, epoch)
        return order[index * self.batch_size : (index + 1) * self.batch_size].astype(np.int64)


@lru_cache(maxsize=1)
def epoch_order(plan: BatchPlan, epoch: int) -> np.ndarray:
    dtype = np.int32 if plan.num_rows < 1 << 31 else np.int64
    return np.random.default_rng([plan.seed, epoch]).permutation(np.arange(plan.num_rows, dtype=dtype))


def shard_rows(lengths: np.ndarray, num_shards: int) -> list[np.ndarray]:
    """Return the rows of each shard as indices into `lengths` (batch_rows,), the tokens of each row, longest
    first. Rows are dealt in rounds: one to each shard, the longest of a round to the shard with the fewest
    tokens so far. So all have about as many tokens, and the numbers of rows differ by at most one."""
    order = np.argsort(-lengths, kind="stable")
    if num_shards == 1:
        return [order]
    shard = np.empty(len(order), dtype=np.int64)
    tokens = np.zeros(num_shards, dtype=np.int64)
    for start in range(0, len(order), num_shards):
        round_rows = order[start : start + num_shards]
        fewest = np.argsort(tokens, kind="stable")[: len(round_rows)]
        shard[start : start + num_shards] = fewest
        tokens[fewest] += lengths[round_rows]
    return [order[shard == index] for index in range(num_shards)]


@dataclass(frozen=True)
class TokenLimit:
    """The most tokens of a forward pass, with those of padding where batches are `padded`."""

    tokens: int
    padded: bool = False

    def cut(self, rows: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Return rows, (num_rows,), longest first, in parts within the limit; at least one part."""
        parts = []
        while len(rows):
            # A row has a token or more
            first = lengths[rows[: self.tokens]]
            counted = np.arange(1, len(first) + 1) * first[0] if self.padded else np.cumsum(first)
            count = max(1, int(np.searchsorted(counted, self.tokens, side="right")))
            parts.append(rows[:count])
            rows = rows[count:]
        return parts or [rows]


def token_batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Return batches of indices into `lengths`, (num_rows,) tokens: similar lengths together, longest first.
    A batch has at most `batch_tokens`, counted as rows x longest row, or is a single row."""
    return TokenLimit(batch_tokens, padded=True).cut(np.argsort(-lengths, kind="stable"), lengths)


def micro_batches(
    batch: np.ndarray,
    lengths: np.ndarray,
    num_shards: int,
    accumulation_steps: int,
    limit: TokenLimit | None = None,
) -> list[list[np.ndarray]]:
    """Return the micro-batches of each shard of a global batch, as row positions, longest row first.

    `batch` (batch_rows,) are row positions, `lengths` (batch_rows,) their tokens. All shards get the same
    number of micro-batches, at least one: `accumulation_steps`, or one for each row; more where some are
    beyond `limit`. Some are empty if the batch has too few rows.
    """
    max_rows = -(-len(batch) // num_shards)
    count = max(1, min(accumulation_steps, max_rows))
    shards = [np.array_split(rows, count) for rows in shard_rows(lengths, num_shards)]
    if limit:
        shards = [[part for rows in shard for part in limit.cut(rows, lengths)] for shard in shards]
    most = max(map(len, shards))
    return [[batch[rows] for rows in shard] + [batch[:0]] * (most - len(shard)) for shard in shards]


def evaluation_batches(
    lengths: np.ndarray,
    batch_size: int,
    num_shards: int,
    shard_index: int,
    windows: np.ndarray | None = None,
    limit: TokenLimit | None = None,
) -> list[np.ndarray]:
    """Return this shard's batches of a whole split, as row positions; each row is on one shard.

    `lengths` (num_rows,) are the tokens of each row; rows of similar length are in one batch. `windows`
    (num_rows,): a batch has at most `batch_size` windows, or one row; None: each row has one. It is within
    `limit`, or has one row. All shards get the same number of batches, because a forward pass may be a
    collective; the last batch may be empty.
    """
    order = np.argsort(-lengths, kind="stable")
    ends = np.arange(1, len(order) + 1) if windows is None else np.cumsum(windows[order])
    batches, start = [], 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + batch_size, side="right")))
        batches += limit.cut(order[start:stop], lengths) if limit else [order[start:stop]]
        start = stop
    batches += [order[:0]] * (-len(batches) % num_shards)
    return batches[shard_index::num_shards]
