"""Which rows are in which step, shard and micro-batch.

The batch plan is a pure function of (num_rows, batch_size, seed, step). So all modes see the same global
batches, and resuming needs only the number of the next step.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from . import limited_batches


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
        start = index * self.batch_size
        positions = epoch_order(self, epoch)[start : start + self.batch_size]
        return positions.astype(np.int64)


@lru_cache(maxsize=1)
def epoch_order(plan: BatchPlan, epoch: int) -> np.ndarray:
    """Return all row positions in the order in which an epoch, from 0 on, trains them."""
    dtype = np.int32 if plan.num_rows < 1 << 31 else np.int64
    generator = np.random.default_rng([plan.seed, epoch])
    return generator.permutation(np.arange(plan.num_rows, dtype=dtype))


def micro_batches(
    batch: np.ndarray,
    lengths: np.ndarray,
    num_shards: int,
    accumulation_steps: int,
    max_tokens: int | None = None,
    padded: bool = False,
) -> list[list[np.ndarray]]:
    """Return the micro-batches of each shard of a global batch, as row positions, longest row first. `batch`
    (batch_rows,) are row positions, `lengths` (batch_rows,) their tokens.

    All shards get the same number of micro-batches, at least one: `accumulation_steps`, or one for each row;
    more where some would have more than `max_tokens`. Some are empty if the batch has too few rows.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    shard_of_row = deal_rows(lengths[longest_first], num_shards)
    rows_per_shard = -(-len(batch) // num_shards)
    num_micro_batches = max(1, min(accumulation_steps, rows_per_shard))
    shards = []
    for shard in range(num_shards):
        shard_rows = longest_first[shard_of_row == shard]
        parts = np.array_split(shard_rows, num_micro_batches)
        if max_tokens:
            parts = limit_tokens(parts, lengths, max_tokens, padded)
        shards.append([batch[rows] for rows in parts])
    longest_shard = max(len(parts) for parts in shards)
    empty = batch[:0]
    for parts in shards:
        parts += [empty] * (longest_shard - len(parts))
    return shards


def deal_rows(lengths: np.ndarray, num_shards: int) -> np.ndarray:
    """Return the shard, from 0, of each row, (num_rows,) int64. `lengths` (num_rows,): longest row first.

    Rows are dealt in rounds: one to each shard, the longest of a round to the shard with the fewest tokens so
    far. So all shards have about as many tokens, and their numbers of rows differ by at most one.
    """
    shard_of_row = np.zeros(len(lengths), dtype=np.int64)
    if num_shards == 1:
        return shard_of_row
    shard_tokens = np.zeros(num_shards, dtype=np.int64)
    for start in range(0, len(lengths), num_shards):
        round_lengths = lengths[start : start + num_shards]
        fewest_tokens_first = np.argsort(shard_tokens, kind="stable")
        receivers = fewest_tokens_first[: len(round_lengths)]
        shard_of_row[start : start + num_shards] = receivers
        shard_tokens[receivers] += round_lengths
    return shard_of_row


def evaluation_batches(
    lengths: np.ndarray,
    batch_size: int | None,
    num_shards: int,
    shard_index: int,
    windows: np.ndarray | None = None,
    max_tokens: int | None = None,
    padded: bool = False,
) -> list[np.ndarray]:
    """Return this shard's batches of a whole split, as row positions; each row is on one shard. `lengths`
    (num_rows,) are the tokens of each row; rows of similar length are in one batch.

    `windows` (num_rows,) are the windows of each row; None: each row has one. A batch has at most
    `batch_size` windows and `max_tokens`, where they are given, or one row. All shards get the same number of
    batches, because a forward pass may be a collective; the last batch may be empty.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    if windows is None:
        windows = np.ones(len(lengths), np.int64)
    batches = [longest_first]
    if batch_size is not None:
        batches = limited_batches(longest_first, windows, batch_size, padded=False)
    if max_tokens:
        batches = limit_tokens(batches, lengths, max_tokens, padded)
    num_missing = -len(batches) % num_shards
    empty = longest_first[:0]
    batches += [empty] * num_missing
    return batches[shard_index::num_shards]


def limit_tokens(
    batches: list[np.ndarray], lengths: np.ndarray, max_tokens: int, padded: bool
) -> list[np.ndarray]:
    """Return batches, rows longest first, cut into batches of at most `max_tokens`, or of one row."""
    smaller_batches = []
    for rows in batches:
        smaller_batches += limited_batches(rows, lengths, max_tokens, padded)
    return smaller_batches
