"""The batch plan: which rows train when, as a pure function of (num_rows, batch_size, seed, epoch).

Nothing else decides it, so every mode, at any number of processes, sees the same global batches in the same order, and
a position in the plan is all that resuming needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class BatchPlan:
    """Global batches of row positions; the last one of an epoch is smaller where `batch_size` does not divide `num_rows`."""

    num_rows: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch."""
        return -(-self.num_rows // self.batch_size)

    def batch(self, step: int) -> np.ndarray:
        """Return the row positions, (<= batch_size,) int64, of global batch `step`, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        order = _order(self.num_rows, self.seed, epoch)
        return order[index * self.batch_size : (index + 1) * self.batch_size].astype(np.int64)


@lru_cache(maxsize=1)
def _order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    dtype = np.int32 if num_rows < 1 << 31 else np.int64
    return np.random.default_rng([seed, epoch]).permutation(np.arange(num_rows, dtype=dtype))


def shares(lengths: np.ndarray, num_shards: int) -> list[np.ndarray]:
    """Deal the rows of a global batch to `num_shards` processes so that each gets about the same number of tokens.

    `lengths` (batch_rows,) tokens of each row. Returns for each shard the indices into the batch, longest row first.
    The rows are dealt in laps, the longest of each to the shard with the fewest tokens so far, so row counts differ by one
    at most.
    """
    order = np.argsort(-lengths, kind="stable")
    if num_shards == 1:
        return [order]
    shard = np.empty(len(order), dtype=np.int64)
    tokens = np.zeros(num_shards, dtype=np.int64)
    for start in range(0, len(order), num_shards):
        lap = order[start : start + num_shards]
        fewest = np.argsort(tokens, kind="stable")[: len(lap)]
        shard[start : start + num_shards] = fewest
        tokens[fewest] += lengths[lap]
    return [order[shard == index] for index in range(num_shards)]


def micro_batches(
    batch: np.ndarray, lengths: np.ndarray, num_shards: int, shard_index: int, accumulation_steps: int
) -> list[np.ndarray]:
    """Return this shard's micro-batches of a global batch.

    `batch` (batch_rows,) row positions, `lengths` (batch_rows,) their tokens. Every shard gets the same number of
    micro-batches, at most `accumulation_steps`; one may be empty where the batch is smaller than that.
    """
    share = shares(lengths, num_shards)[shard_index]
    largest = -(-len(batch) // num_shards)
    return [batch[part] for part in np.array_split(share, min(accumulation_steps, largest))]


def evaluation_batches(lengths: np.ndarray, batch_size: int, num_shards: int, shard_index: int) -> list[np.ndarray]:
    """Return this shard's batches of a whole split: every row on exactly one shard, rows of like length together.

    `lengths` (num_rows,) tokens of each row; returns row positions. Every shard gets the same number of batches, because
    a forward pass may be a collective; the last may be empty.
    """
    order = np.argsort(-lengths, kind="stable")
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    batches += [order[:0]] * (-len(batches) % num_shards)
    return batches[shard_index::num_shards]
