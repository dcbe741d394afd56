"""Which tokens are hidden: python -m pytest tests/batching/test_masking.py"""

import numpy as np
import pytest
import torch

from app.batching.loader import EVALUATION
from app.batching.masking import FRACTION, MaskedLoader, Masking
from app.data.dataset import Split
from tests.tiny import open_tiny, tiny_model

SPECIAL, MASK = [0, 1, 2, 3], 3
ORDINARY = np.arange(4, 1000)


def masking(seed: int = 7) -> Masking:
    return Masking(seed, MASK, ORDINARY)


def row(length: int, seed: int = 0) -> np.ndarray:
    tokens = np.random.default_rng(seed).integers(4, 1000, length)
    return np.concatenate([[1], tokens, [2]])


def test_masks_are_a_pure_function_of_seed_draw_and_row():
    tokens = row(60)
    first, again = masking()(tokens, 5, 3), masking()(tokens.copy(), 5, 3)
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.places, again.places)
    others = [
        masking(8)(tokens, 5, 3),
        masking()(tokens, 6, 3),
        masking()(tokens, 5, 4),
        masking()(tokens, 5, EVALUATION),
    ]
    assert all(not np.array_equal(first.places, other.places) for other in others)
    assert np.array_equal(first.labels, tokens[first.places])
    assert (np.diff(first.places) > 0).all()


def test_fifteen_percent_are_hidden_eighty_ten_ten():
    rows = [masking()(row(100, seed), seed, 0) for seed in range(300)]
    assert {len(hidden.places) for hidden in rows} == {round(100 * FRACTION)}
    seen = np.concatenate([hidden.tokens[hidden.places] for hidden in rows])
    labels = np.concatenate([hidden.labels for hidden in rows])
    assert np.mean(seen == MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(seen == labels) == pytest.approx(0.1, abs=0.02)
    assert not np.isin(seen[seen != MASK], SPECIAL).any()
    untouched = [np.delete(hidden.tokens, hidden.places) for hidden in rows]
    assert all(
        np.array_equal(kept, np.delete(row(100, i), rows[i].places)) for i, kept in enumerate(untouched)
    )


def test_special_tokens_are_never_hidden_and_a_short_row_has_one_target():
    for seed in range(50):
        assert masking()(np.array([1, 500, 2]), seed, 0).places.tolist() == [1]
    assert not len(masking()(np.array([1, 2]), 0, 0).places)
    # A token that the tokenizer does not know
    assert not len(masking()(np.array([1, 5000, 2]), 0, 0).places)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> tuple[Split, dict, Masking]:
    dataset, tokenizer, stores = open_tiny(tmp_path_factory.mktemp("masking"))
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    return dataset.splits["train"], stores, Masking(0, tokenizer.mask_token_id, ordinary)


def test_packed_and_padded_batches_have_the_same_targets(tiny):
    split, stores, masks = tiny
    positions, cpu = np.array([7, 0, 3, 11]), torch.device("cpu")
    batches = [
        MaskedLoader(split, stores["train"], tiny_model().layout(packed), masks).load(positions, cpu, 5)
        for packed in (True, False)
    ]
    packed, padded = batches
    assert packed.labels.tolist() == padded.labels.tolist()
    assert packed.label_rows.tolist() == padded.label_rows.tolist()
    ids = packed.inputs["input_ids"][0][packed.inputs["masked"]]
    assert ids.tolist() == padded.inputs["input_ids"][padded.inputs["masked"]].tolist()
    assert packed.label_positions.tolist() == positions[packed.label_rows].tolist()


def test_the_divisor_counts_the_targets_of_the_global_batch_however_it_is_cut(tiny):
    split, stores, masks = tiny
    loader = MaskedLoader(split, stores["train"], tiny_model().layout(True), masks)
    batch, cpu = np.arange(10), torch.device("cpu")
    divisor = loader.divisor(batch, 4)
    assert divisor == sum(len(loader.load(part, cpu, 4).labels) for part in np.array_split(batch, 3))
    # Keeps no rows
    fresh = MaskedLoader(split, stores["train"], tiny_model().layout(True), masks)
    assert torch.equal(fresh.load(batch, cpu, 4).labels, loader.load(batch, cpu, 4).labels)


def test_an_empty_batch_has_a_stand_in_row_without_targets(tiny):
    split, stores, masks = tiny
    for packed in (True, False):
        loader = MaskedLoader(split, stores["train"], tiny_model().layout(packed), masks)
        batch = loader.load(np.empty(0, np.int64), torch.device("cpu"))
        assert len(batch.labels) == 0
        assert len(batch.positions) == 0
        assert batch.inputs["input_ids"].numel()
        assert not batch.inputs["masked"].any()
