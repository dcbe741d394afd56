"""Shapes to which batches are filled up, chosen beforehand: python -m pytest tests/batching/test_buckets.py"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from app.batching import buckets
from app.batching.buckets import (
    BUCKET_TO,
    MOST,
    RECORDING,
    ROUND_LONGEST_TO,
    Bucket,
    best_sizes,
    choose_buckets,
    few_sizes,
    filled_shape,
)
from app.batching.collate import collate
from tests.tiny import tiny_model, token_rows


def padding(sizes: np.ndarray, tokens: np.ndarray) -> int:
    """Return the tokens of padding where each batch is filled up to the next size above its own."""
    return int((sizes[np.searchsorted(sizes, tokens, side="right")] - tokens).sum())


def random_sizes(generator: np.random.Generator) -> np.ndarray:
    """Return the tokens of some batches: few or many, alike or not, also on the edges of sizes."""
    spread = int(generator.choice([3, 300, 3000]))
    tokens = generator.integers(1, spread + 1, int(generator.integers(1, 40)))
    return np.where(generator.random(len(tokens)) < 0.3, -(-tokens // BUCKET_TO) * BUCKET_TO, tokens)


@pytest.mark.parametrize("seed", range(30))
def test_every_batch_fits_in_the_bucket_that_was_chosen_for_it(seed):
    generator = np.random.default_rng(seed)
    tokens = random_sizes(generator)
    rows = generator.integers(1, 4, len(tokens))
    longest = generator.integers(-(-tokens // rows), tokens + 1)
    chosen = choose_buckets(rows, tokens, longest)
    used = set()
    for batch in zip(rows.tolist(), tokens.tolist(), longest.tolist(), strict=True):
        filled, bound = filled_shape(*batch, tuple(chosen))
        bucket = Bucket(batch[0], filled, bound)
        assert bucket in chosen
        assert bucket.fits(*batch)
        assert filled > batch[1], "there is always a row of padding"
        assert bound >= max(batch[2], filled - batch[1])
        assert (filled % BUCKET_TO, bound % ROUND_LONGEST_TO) == (0, 0)
        used.add(bucket)
    assert used == set(chosen), "each bucket is recorded, so none may be for nothing"
    for bucket, index in chosen.items():
        assert filled_shape(rows[index], tokens[index], longest[index], tuple(chosen)) == (
            bucket.tokens,
            bucket.longest,
        )
        assert rows[index] == bucket.rows


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_other_choice_of_sizes_takes_less_padding(seed, most):
    tokens = random_sizes(np.random.default_rng(seed))
    possible = range(BUCKET_TO, int(tokens.max()) + BUCKET_TO + 1, BUCKET_TO)
    # Brute force over some of them
    if len(possible) > 12:
        possible = np.unique((tokens // BUCKET_TO + 1) * BUCKET_TO)[-12:].tolist()
        tokens = tokens[tokens >= possible[0] - BUCKET_TO]
    choices = (choice for number in range(1, most + 1) for choice in combinations(possible, number))
    least = min(padding(np.array(choice), tokens) for choice in choices if choice[-1] > tokens.max())
    found = best_sizes(tokens, most)[-1]
    assert len(found) <= most
    assert padding(found, tokens) == least


@pytest.mark.parametrize("seed", range(10))
def test_more_sizes_never_take_more_padding(seed):
    tokens = random_sizes(np.random.default_rng(seed))
    found = [padding(best_sizes(tokens, most)[-1], tokens) for most in range(1, 12)]
    assert found == sorted(found, reverse=True)


def test_another_size_is_chosen_only_where_it_saves_more_padding_than_its_recording_takes():
    short = np.random.default_rng(0).normal(620, 90, 300).astype(np.int64)
    numbers = []
    for times in (1, 10, 100):
        tokens = np.tile(short, times)
        sizes = few_sizes(tokens)
        numbers.append(len(sizes))
        recording = RECORDING * tokens.mean()
        for other in best_sizes(tokens, MOST):
            assert padding(sizes, tokens) - padding(other, tokens) <= (len(other) - len(sizes)) * recording
    assert 1 < numbers[0] < numbers[1] <= numbers[2] <= MOST, "the more steps, the more sizes pay"
    assert few_sizes(np.array([63])).tolist() == [64]
    assert few_sizes(np.array([64])).tolist() == [128]


def test_without_buckets_sizes_are_rounded(monkeypatch):
    rows, tokens, longest = np.array([[32, 600, 90], [32, 700, 128], [16, 300, 40]]).T
    assert len(choose_buckets(rows, tokens, longest)) == 2
    monkeypatch.setattr(buckets, "MOST", 0)
    assert choose_buckets(rows, tokens, longest) == {}
    assert filled_shape(32, 600, 90, ()) == (640, 128)
    assert filled_shape(32, 600, 200, ()) == (640, 256)


def test_a_batch_that_was_not_planned_is_rounded():
    planned = (Bucket(32, 704, 128), Bucket(32, 1024, 384))
    assert filled_shape(32, 600, 90, planned) == (704, 128)
    assert filled_shape(32, 704, 90, planned) == (1024, 384)
    assert filled_shape(32, 1024, 90, planned) == (1152, 128), "more tokens than the largest bucket"
    assert filled_shape(31, 600, 90, planned) == (640, 128), "another number of rows"
    assert filled_shape(32, 650, 300, planned) == (1024, 384), "a longer row"
    assert filled_shape(32, 600, 300, planned) == (640, 384), (
        "too much padding for one row of the largest bucket"
    )


@pytest.mark.parametrize("pairs", [False, True], ids=["single", "pairs"])
def test_a_batch_in_a_bucket_has_its_shape_and_the_same_outputs_and_gradients(pairs):
    rows = token_rows([5, 9, 3, 20])
    starts = [2, 9, 1, 7] if pairs else None
    layout = tiny_model(pad_id=1).layout(True, varlen=True)
    bucketed = replace(layout, filled=True, buckets=(Bucket(4, 192, 256),))
    inputs = collate(rows, starts, bucketed)
    assert inputs["input_ids"].shape == (1, 192)
    assert inputs["row_offsets"].tolist() == [0, 5, 14, 17, 37, 192]
    assert inputs["longest"] == 256
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    results = []
    for form in (layout, bucketed):
        model = tiny_model(pad_id=1).train()
        outputs = model(**collate(rows, starts, form))[:4]
        (outputs * weights).sum().backward()
        results.append({"outputs": outputs.detach()} | {name: p.grad for name, p in model.named_parameters()})
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, atol=1e-4, rtol=1e-4, msg=name)
