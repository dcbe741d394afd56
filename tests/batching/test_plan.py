"""Which rows are in which batch."""

import numpy as np
import pytest

from app.batching.plan import BatchPlan, evaluation_batches, micro_batches

SHARDS = pytest.mark.parametrize("num_shards", [1, 2, 3, 4, 8])


def random_lengths(num_rows: int, seed: int = 0) -> np.ndarray:
    """Lengths as texts have them: most are short, a few long."""
    return np.random.default_rng(seed).geometric(0.05, num_rows) + 2


def all_rows(shards: list) -> list[int]:
    return sorted(np.concatenate([np.concatenate(batches) for batches in shards]))


SIZES = [(1, 1), (1, 32), (5, 2), (32, 32), (33, 32), (97, 10), (100, 7), (1000, 64)]


@pytest.mark.parametrize(("num_rows", "batch_size"), SIZES)
def test_every_row_trains_once_an_epoch_and_the_last_batch_is_smaller(num_rows, batch_size):
    """Whatever batch is asked for first, and whatever generator the process has."""
    plan, other = (BatchPlan(num_rows, batch_size, seed=3) for _ in range(2))
    np.random.seed(1)
    backward = [other.batch(step) for step in reversed(range(3 * plan.steps_per_epoch))]
    np.random.seed(2)
    for epoch in range(3):
        first = epoch * plan.steps_per_epoch
        batches = [plan.batch(step) for step in range(first, first + plan.steps_per_epoch)]
        sizes = [len(batch) for batch in batches]
        assert all_rows([batches]) == list(range(num_rows))
        assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
        assert sizes[-1] == (num_rows % batch_size or batch_size)
        assert all(np.array_equal(batch, backward.pop()) for batch in batches)


@pytest.mark.parametrize("accumulation", [1, 3, 7, 100])
@SHARDS
@pytest.mark.parametrize("num_rows", [1, 3, 8, 33, 500])
def test_micro_batches_of_all_shards_are_the_batch(num_rows, num_shards, accumulation):
    batch = np.random.default_rng(1).permutation(1000)[:num_rows]
    lengths = random_lengths(1000)
    shards = micro_batches(batch, lengths[batch], num_shards, accumulation)
    of_shards = [np.concatenate(shard) for shard in shards]
    assert all_rows(shards) == sorted(batch)
    assert np.ptp([len(rows) for rows in of_shards]) <= 1
    # The longest row of a round goes to the shard with the fewest tokens.
    assert np.ptp([lengths[rows].sum() for rows in of_shards]) <= lengths[batch].max()
    # Or the ranks would wait for each other forever
    (count,) = {len(shard) for shard in shards}
    assert count == min(accumulation, -(-num_rows // num_shards))
    for rows, shard in zip(of_shards, shards, strict=True):
        assert np.ptp([len(micro) for micro in shard]) <= 1
        assert (np.diff(lengths[rows]) <= 0).all(), "rows of similar length are in one micro-batch"


@pytest.mark.parametrize("has_windows", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
@SHARDS
@pytest.mark.parametrize("num_rows", [1, 3, 63, 65, 200])
def test_evaluation_covers_each_row_once(num_rows, num_shards, batch_size, has_windows):
    lengths = random_lengths(num_rows)
    windows = -(-lengths // 20) if has_windows else None
    counts = windows if has_windows else np.ones(num_rows)
    shards = [evaluation_batches(lengths, batch_size, num_shards, i, windows) for i in range(num_shards)]
    assert all_rows(shards) == list(range(num_rows))
    (count,) = {len(batches) for batches in shards}
    assert count >= 1
    batches = [batch for batches in shards for batch in batches]
    assert all(len(batch) <= 1 or counts[batch].sum() <= batch_size for batch in batches)
    assert batch_size != 7 or num_rows < 63 or max(counts[batch].sum() for batch in batches) == 7


@pytest.mark.parametrize("padded", [False, True])
@SHARDS
@pytest.mark.parametrize("tokens", [1, 60, 400])
def test_no_pass_has_more_tokens_than_the_limit(tokens, num_shards, padded):
    """One long text is alone, and the others are as many as fit."""
    lengths = random_lengths(65)
    lengths[7] = 500
    training = micro_batches(np.arange(65), lengths, num_shards, 2, tokens, padded)
    evaluation = [
        evaluation_batches(lengths, 16, num_shards, i, None, tokens, padded) for i in range(num_shards)
    ]
    for shards, most in ((training, -(-33 // num_shards)), (evaluation, 16)):
        assert all_rows(shards) == list(range(65))
        assert len({len(of) for of in shards}) == 1
        for rows in (rows for of in shards for rows in of if len(rows)):
            cost = lengths[rows].max() * len(rows) if padded else lengths[rows].sum()
            assert cost <= tokens or len(rows) == 1
            assert len(rows) <= most
    sizes = {len(rows) for of in training for rows in of}
    assert max(sizes) == 1 if tokens == 1 else max(sizes) > 3
