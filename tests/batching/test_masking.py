"""Hidden tokens: which, and the batches that have them as targets."""

from functools import partial

import numpy as np
import pytest
import torch

from app.batching.loader import EVALUATION
from app.batching.masking import TARGET_SHARE, MaskedLoader, masked_row
from tests.tiny import open_tiny, tiny_model

CPU = torch.device("cpu")
SPECIAL = [0, 1, 2, 3]
MASK = 3
hide = partial(masked_row, mask_id=MASK, ordinary_ids=np.arange(4, 1000))


def random_row(seed: int) -> np.ndarray:
    return np.concatenate([[1], np.random.default_rng(seed).integers(4, 1000, 100), [2]])


def test_masks_are_a_pure_function_of_seed_draw_and_row():
    tokens = random_row(0)
    first = hide(tokens, 5, 3, 7)
    again = hide(tokens.copy(), 5, 3, 7)
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.places, again.places)
    for row, draw, seed in [(5, 3, 8), (6, 3, 7), (5, 4, 7), (5, EVALUATION, 7)]:
        assert not np.array_equal(first.places, hide(tokens, row, draw, seed).places)
    assert np.array_equal(first.labels, tokens[first.places])
    assert (np.diff(first.places) > 0).all()


def test_fifteen_percent_are_hidden_eighty_ten_ten():
    rows = [hide(random_row(seed), seed, 0, 7) for seed in range(300)]
    assert {len(hidden.places) for hidden in rows} == {round(100 * TARGET_SHARE)}
    seen = np.concatenate([hidden.tokens[hidden.places] for hidden in rows])
    labels = np.concatenate([hidden.labels for hidden in rows])
    assert np.mean(seen == MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(seen == labels) == pytest.approx(0.1, abs=0.02)
    assert not np.isin(seen[seen != MASK], SPECIAL).any()
    for seed, hidden in enumerate(rows):
        other_tokens = np.delete(hidden.tokens, hidden.places)
        assert np.array_equal(other_tokens, np.delete(random_row(seed), hidden.places))


def test_special_tokens_are_never_hidden_and_a_short_row_has_one_target():
    for seed in range(50):
        assert hide(np.array([1, 500, 2]), seed, 0, 7).places.tolist() == [1]
    # The last has a token that the tokenizer does not know
    for tokens in ([1, 2], [1, 5000, 2]):
        assert not len(hide(np.array(tokens), 0, 0, 7).places)


def test_masked_batches_have_the_same_targets_in_each_layout_and_cut(tmp_path):
    dataset, tokenizer, stores = open_tiny(tmp_path)
    ordinary_ids = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    mask = partial(masked_row, seed=0, mask_id=tokenizer.mask_token_id, ordinary_ids=ordinary_ids)
    train = dataset.splits["train"]
    packed_loader = MaskedLoader(train, stores["train"], tiny_model().layout(packed=True), mask)
    padded_loader = MaskedLoader(train, stores["train"], tiny_model().layout(packed=False), mask)
    positions = np.array([7, 0, 3, 11])
    packed = packed_loader.load(positions, CPU, 5)
    padded = padded_loader.load(positions, CPU, 5)
    assert packed.labels.tolist() == padded.labels.tolist()
    assert packed.label_rows.tolist() == padded.label_rows.tolist()
    ids = packed.inputs["input_ids"][0][packed.inputs["masked"]]
    assert ids.tolist() == padded.inputs["input_ids"][padded.inputs["masked"]].tolist()
    assert packed.positions.tolist() == positions.tolist()

    batch = np.arange(10)
    labels = packed_loader.load(batch, CPU, 4).labels
    divisor = packed_loader.divisor(batch, 4)
    num_targets = 0
    for part in np.array_split(batch, 3):
        num_targets += len(packed_loader.load(part, CPU, 4).labels)
    assert divisor == num_targets
    # What it keeps of the batch is the same
    assert torch.equal(labels, packed_loader.load(batch, CPU, 4).labels)

    # An empty batch has a stand-in row without targets
    for loader in (packed_loader, padded_loader):
        empty = loader.load(np.empty(0, np.int64), CPU)
        assert len(empty.labels) == len(empty.positions) == 0
        assert empty.inputs["input_ids"].numel()
        assert not empty.inputs["masked"].any()
