"""Which tokens are hidden: python -m pytest tests/batching/test_masking.py"""

from functools import partial

import numpy as np
import pytest
import torch

from app.batching.loader import EVALUATION
from app.batching.masking import FRACTION, MaskedLoader, masked_row
from tests.tiny import open_tiny, tiny_model

SPECIAL, MASK = [0, 1, 2, 3], 3
CPU = torch.device("cpu")
hide = partial(masked_row, mask_id=MASK, ordinary_ids=np.arange(4, 1000))


def row(length: int, seed: int = 0) -> np.ndarray:
    tokens = np.random.default_rng(seed).integers(4, 1000, length)
    return np.concatenate([[1], tokens, [2]])


def test_masks_are_a_pure_function_of_seed_draw_and_row():
    tokens = row(60)
    first, again = hide(tokens, 5, 3, 7), hide(tokens.copy(), 5, 3, 7)
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.places, again.places)
    for other in [(5, 3, 8), (6, 3, 7), (5, 4, 7), (5, EVALUATION, 7)]:
        assert not np.array_equal(first.places, hide(tokens, *other).places)
    assert np.array_equal(first.labels, tokens[first.places])
    assert (np.diff(first.places) > 0).all()


def test_fifteen_percent_are_hidden_eighty_ten_ten():
    rows = [hide(row(100, seed), seed, 0, 7) for seed in range(300)]
    assert {len(hidden.places) for hidden in rows} == {round(100 * FRACTION)}
    seen = np.concatenate([hidden.tokens[hidden.places] for hidden in rows])
    labels = np.concatenate([hidden.labels for hidden in rows])
    assert np.mean(seen == MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(seen == labels) == pytest.approx(0.1, abs=0.02)
    assert not np.isin(seen[seen != MASK], SPECIAL).any()
    for seed, hidden in enumerate(rows):
        kept, original = (np.delete(tokens, hidden.places) for tokens in (hidden.tokens, row(100, seed)))
        assert np.array_equal(kept, original)


def test_special_tokens_are_never_hidden_and_a_short_row_has_one_target():
    for seed in range(50):
        assert hide(np.array([1, 500, 2]), seed, 0, 7).places.tolist() == [1]
    # The last has a token that the tokenizer does not know
    for tokens in ([1, 2], [1, 5000, 2]):
        assert not len(hide(np.array(tokens), 0, 0, 7).places)


@pytest.fixture(scope="module")
def loaders(tmp_path_factory) -> list[MaskedLoader]:
    """Of the same rows: packed, padded."""
    dataset, tokenizer, stores = open_tiny(tmp_path_factory.mktemp("masking"))
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    mask = partial(masked_row, seed=0, mask_id=tokenizer.mask_token_id, ordinary_ids=ordinary)
    layouts = [tiny_model().layout(packed) for packed in (True, False)]
    return [MaskedLoader(dataset.splits["train"], stores["train"], layout, mask) for layout in layouts]


def test_packed_and_padded_batches_have_the_same_targets(loaders):
    positions = np.array([7, 0, 3, 11])
    packed, padded = (loader.load(positions, CPU, 5) for loader in loaders)
    assert packed.labels.tolist() == padded.labels.tolist()
    assert packed.label_rows.tolist() == padded.label_rows.tolist()
    ids = packed.inputs["input_ids"][0][packed.inputs["masked"]]
    assert ids.tolist() == padded.inputs["input_ids"][padded.inputs["masked"]].tolist()
    assert packed.label_positions.tolist() == positions[packed.label_rows].tolist()


def test_the_divisor_counts_the_targets_of_the_global_batch_however_it_is_cut(loaders):
    loader, batch = loaders[0], np.arange(10)
    fresh = loader.load(batch, CPU, 4).labels
    divisor = loader.divisor(batch, 4)
    assert divisor == sum(len(loader.load(part, CPU, 4).labels) for part in np.array_split(batch, 3))
    # What it keeps of the batch is the same
    assert torch.equal(fresh, loader.load(batch, CPU, 4).labels)


def test_an_empty_batch_has_a_stand_in_row_without_targets(loaders):
    for loader in loaders:
        batch = loader.load(np.empty(0, np.int64), CPU)
        assert len(batch.labels) == len(batch.positions) == 0
        assert batch.inputs["input_ids"].numel()
        assert not batch.inputs["masked"].any()
