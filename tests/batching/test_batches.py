"""The batch plan: python -m pytest tests/batching/test_batches.py"""

import numpy as np
import pytest

from app.batching.loader import BatchPlan, evaluation_batches, micro_batches

SIZES = [(1, 1), (1, 32), (5, 2), (32, 32), (33, 32), (97, 10), (100, 7), (1000, 64)]
SHARDS = [1, 2, 3, 4, 8]


def random_lengths(num_rows: int, seed: int = 0) -> np.ndarray:
    """Lengths as texts have them: most are short, a few long."""
    return np.random.default_rng(seed).geometric(0.05, num_rows) + 2


@pytest.mark.parametrize(("num_rows", "batch_size"), SIZES)
def test_every_row_trains_once_an_epoch_and_the_last_batch_is_smaller(num_rows, batch_size):
    plan = BatchPlan(num_rows, batch_size, seed=3)
    for epoch in range(3):
        first = epoch * plan.steps_per_epoch
        batches = [plan.batch(step) for step in range(first, first + plan.steps_per_epoch)]
        sizes = [len(batch) for batch in batches]
        assert sorted(np.concatenate(batches)) == list(range(num_rows))
        assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
        assert sizes[-1] == (num_rows % batch_size or batch_size)


def test_plan_is_a_function_of_its_values_in_any_order_of_asking():
    """And of no generator of the process."""
    np.random.seed(1)
    forward = [BatchPlan(97, 10, 5).batch(step) for step in range(45)]
    np.random.seed(2)
    backward = [BatchPlan(97, 10, 5).batch(step) for step in reversed(range(45))]
    for one, other in zip(forward, backward[::-1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_shards_hold_the_same_tokens_to_a_few_percent():
    """The others wait for the shard with the most tokens."""
    excess = []
    for seed in range(100):
        lengths = random_lengths(64, seed)
        tokens = np.array([lengths[rows].sum() for [rows] in micro_batches(np.arange(64), lengths, 4, 1)])
        excess.append(tokens.max() / tokens.mean() - 1)
    # 0.02; dealt back and forth 0.05, in one direction 0.11
    assert np.mean(excess) < 0.03


@pytest.mark.parametrize("accumulation", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("num_shards", SHARDS)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 8, 10, 32, 33, 500])
def test_micro_batches_of_all_shards_are_the_batch(num_rows, num_shards, accumulation):
    batch, lengths = np.random.default_rng(1).permutation(1000)[:num_rows], random_lengths(1000)
    shards = micro_batches(batch, lengths[batch], num_shards, accumulation)
    of_shards = [np.concatenate(shard) for shard in shards]
    assert sorted(np.concatenate(of_shards)) == sorted(batch)
    assert np.ptp([len(rows) for rows in of_shards]) <= 1
    # The longest row of a round goes to the shard with the fewest tokens.
    assert np.ptp([lengths[rows].sum() for rows in of_shards]) <= lengths[batch].max()
    # Or the ranks would wait for each other forever
    (count,) = {len(shard) for shard in shards}
    assert count == min(accumulation, -(-num_rows // num_shards))
    assert all(np.ptp([len(micro) for micro in shard]) <= 1 for shard in shards)


def test_micro_batches_hold_rows_of_similar_length():
    lengths = random_lengths(64)
    [batches] = micro_batches(np.arange(64), lengths, 1, 4)
    for longer, shorter in zip(batches, batches[1:], strict=False):
        assert lengths[longer].min() >= lengths[shorter].max()


@pytest.mark.parametrize("batch_size", [1, 2, 7, 64])
@pytest.mark.parametrize("num_shards", SHARDS)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 63, 64, 65, 200])
def test_evaluation_covers_each_row_once(num_rows, num_shards, batch_size):
    shards = [
        evaluation_batches(random_lengths(num_rows), batch_size, num_shards, i) for i in range(num_shards)
    ]
    assert sorted(np.concatenate([np.concatenate(batches) for batches in shards])) == list(range(num_rows))
    (count,) = {len(batches) for batches in shards}
    assert count >= 1
    assert all(len(batch) <= batch_size for batches in shards for batch in batches)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("num_shards", SHARDS)
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
        assert sorted(np.concatenate([np.concatenate(of) for of in shards])) == list(range(65))
        assert len({len(of) for of in shards}) == 1
        for rows in (rows for of in shards for rows in of if len(rows)):
            cost = lengths[rows].max() * len(rows) if padded else lengths[rows].sum()
            assert cost <= tokens or len(rows) == 1
            assert len(rows) <= most
    sizes = {len(rows) for of in training for rows in of}
    assert max(sizes) == 1 if tokens == 1 else max(sizes) > 3
