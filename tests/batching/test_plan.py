"""Which rows are in which batch."""

import math
from itertools import chain

import numpy as np
import pytest

from app.batching.plan import BatchPlan, evaluation_batches, micro_batches

SHARDS = pytest.mark.parametrize("num_shards", [1, 2, 3, 4, 8])


def random_lengths(num_rows: int, seed: int = 0) -> np.ndarray:
    """Lengths as texts have them: most are short, a few long."""
    return np.random.default_rng(seed).geometric(0.05, num_rows) + 2


def all_rows(shards: list) -> list[int]:
    shard_rows = [np.concatenate(batches) for batches in shards]
    return sorted(np.concatenate(shard_rows))


SIZES = [(1, 1), (1, 32), (5, 2), (32, 32), (33, 32), (97, 10), (100, 7), (1000, 64)]


@pytest.mark.parametrize(("num_rows", "batch_size"), SIZES)
def test_every_row_trains_once_an_epoch_and_the_last_batch_is_smaller(num_rows, batch_size):
    """Whatever batch is asked for first, and whatever generator the process has."""
    plan = BatchPlan(num_rows, batch_size, seed=3)
    backward_plan = BatchPlan(num_rows, batch_size, seed=3)
    steps = range(3 * plan.steps_per_epoch)
    np.random.seed(1)
    expected_batches = {step: backward_plan.batch(step) for step in reversed(steps)}
    np.random.seed(2)
    for epoch in range(3):
        first_step = epoch * plan.steps_per_epoch
        batches = []
        for step in range(first_step, first_step + plan.steps_per_epoch):
            batch = plan.batch(step)
            assert np.array_equal(batch, expected_batches[step])
            batches.append(batch)
        sizes = [len(batch) for batch in batches]
        assert all_rows([batches]) == list(range(num_rows))
        assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
        assert sizes[-1] == (num_rows % batch_size or batch_size)


@pytest.mark.parametrize("accumulation", [1, 3, 7, 100])
@SHARDS
@pytest.mark.parametrize("num_rows", [1, 3, 8, 33, 500])
def test_micro_batches_of_all_shards_are_the_batch(num_rows, num_shards, accumulation):
    batch = np.random.default_rng(1).permutation(1000)[:num_rows]
    lengths = random_lengths(1000)
    shards = micro_batches(batch, lengths[batch], num_shards, accumulation)
    assert all_rows(shards) == sorted(batch)
    num_passes = min(accumulation, math.ceil(num_rows / num_shards))
    shard_sizes = []
    shard_tokens = []
    for shard in shards:
        # Or the ranks would wait for each other forever
        assert len(shard) == num_passes
        sizes = [len(rows) for rows in shard]
        assert np.ptp(sizes) <= 1
        shard_lengths = lengths[np.concatenate(shard)]
        assert (np.diff(shard_lengths) <= 0).all(), "rows of similar length are in one micro-batch"
        shard_sizes.append(len(shard_lengths))
        shard_tokens.append(shard_lengths.sum())
    assert np.ptp(shard_sizes) <= 1
    # The longest row of a round goes to the shard with the fewest tokens.
    assert np.ptp(shard_tokens) <= lengths[batch].max()


@pytest.mark.parametrize("has_windows", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
@SHARDS
@pytest.mark.parametrize("num_rows", [1, 3, 63, 65, 200])
def test_evaluation_covers_each_row_once(num_rows, num_shards, batch_size, has_windows):
    lengths = random_lengths(num_rows)
    windows = None
    counts = np.ones(num_rows)
    if has_windows:
        windows = np.ceil(lengths / 20).astype(np.int64)
        counts = windows
    shards = []
    for shard_id in range(num_shards):
        shards.append(evaluation_batches(lengths, batch_size, num_shards, shard_id, windows))
    assert all_rows(shards) == list(range(num_rows))
    (num_batches,) = {len(batches) for batches in shards}
    assert num_batches >= 1
    batch_counts = []
    for batch in chain.from_iterable(shards):
        assert len(batch) <= 1 or counts[batch].sum() <= batch_size
        batch_counts.append(counts[batch].sum())
    assert batch_size != 7 or num_rows < 63 or max(batch_counts) == 7


@SHARDS
def test_evaluation_may_be_limited_by_tokens_alone(num_shards):
    lengths = random_lengths(200)
    shards = []
    for shard_id in range(num_shards):
        shards.append(evaluation_batches(lengths, None, num_shards, shard_id, max_tokens=2000))
    assert all_rows(shards) == list(range(200))
    sizes = [len(batch) for batch in chain.from_iterable(shards)]
    assert max(sizes) > 64
    assert max(lengths[batch].sum() for batch in chain.from_iterable(shards)) <= 2000


@pytest.mark.parametrize("padded", [False, True])
@SHARDS
@pytest.mark.parametrize("tokens", [1, 60, 400])
def test_no_pass_has_more_tokens_than_the_limit(tokens, num_shards, padded):
    """One long text is alone, and the others are as many as fit."""
    lengths = random_lengths(65)
    lengths[7] = 500
    training = micro_batches(np.arange(65), lengths, num_shards, 2, tokens, padded)
    evaluation = []
    for shard_id in range(num_shards):
        batches = evaluation_batches(lengths, 16, num_shards, shard_id, None, tokens, padded)
        evaluation.append(batches)
    for shards, max_rows in ((training, math.ceil(33 / num_shards)), (evaluation, 16)):
        assert all_rows(shards) == list(range(65))
        assert len({len(batches) for batches in shards}) == 1
        for rows in chain.from_iterable(shards):
            assert len(rows) <= max_rows
            if len(rows) <= 1:
                continue
            if padded:
                assert lengths[rows].max() * len(rows) <= tokens
            else:
                assert lengths[rows].sum() <= tokens
    largest = max(len(rows) for rows in chain.from_iterable(training))
    if tokens == 1:
        assert largest == 1
    else:
        assert largest > 3
