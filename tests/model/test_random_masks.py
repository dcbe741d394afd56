"""The masks of dropout: as good as random, and the same for a row whatever is beside it.

All seeds are fixed, so no test fails by chance. `LIMIT` is in standard errors: of some 400 figures the
largest is about 3 where the numbers are random.
"""

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from app.batching.collate import RowKeys, StepMasks, collate, keys_of_rows, keys_of_tokens
from app.batching.grouping import token_places
from app.model.classifier import Classifier
from app.model.dropout import Keys, draws, mixed
from tests.model.test_head_precision import MORE
from tests.model.test_parameter_groups import PADDED, TYPES
from tests.tiny import row_keys, tiny_model, token_rows

LIMIT = 4.5
ROWS = 64
TOKENS = 32
CHANNELS = 384
# Layers and the places of others, and the last one of a large model
PLACES = (0, 1, 2, 24, 60_000)


def keys_of_step(step: int, seed: int = 1, window: int = 0, num_rows: int = ROWS) -> np.ndarray:
    """Return the keys of the tokens of rows of one length, (num_rows, TOKENS)."""
    keys = keys_of_rows(StepMasks(seed, step), np.arange(num_rows), window)
    row_of_token, positions = token_places(np.full(num_rows, TOKENS))
    return keys_of_tokens(keys.rows, row_of_token, positions).reshape(num_rows, TOKENS)


def dropped(p: float, place: int = 0, **key_options) -> Tensor:
    """Return which channels are dropped with the probability `p`, (ROWS, TOKENS, CHANNELS) bool."""
    keys = Keys.of(torch.from_numpy(keys_of_step(**key_options)))
    return draws(keys, place, CHANNELS) < round(p * 2**16) - 2**15


def correlation(first: Tensor, second: Tensor, p: float) -> float:
    """Return the covariance of two masks, in its standard errors."""
    covariance = (first & second).double().mean() - p**2
    standard_error = (p**2 * (1 - p**2) / first.numel()) ** 0.5
    return float(covariance) / standard_error


def spread(counts: Tensor, size: int, p: float) -> float:
    """Return how far chi-square of counts, each of `size` masks, is from its mean, in its standard errors."""
    counts = counts.double().flatten()
    chi_square = float(((counts - size * p).square() / (size * p * (1 - p))).sum())
    return (chi_square - len(counts)) / (2 * len(counts)) ** 0.5


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_masks_are_as_good_as_random(p):
    """16 million masks: the rate in its binomial interval, chi-square of channels, tokens and rows, and no
    correlation of neighbours, layers, steps, rows, windows or seeds."""
    p = round(p * 2**16) / 2**16
    masks = {}
    for step in (0, 1):
        for place in PLACES:
            masks[step, place] = dropped(p, place, step=step)
    figures = {}
    for key, mask in masks.items():
        size = mask.numel()
        figures["rate", key] = (float(mask.double().mean()) - p) / (p * (1 - p) / size) ** 0.5
        figures["channels", key] = spread(mask.sum((0, 1)), ROWS * TOKENS, p)
        figures["tokens", key] = spread(mask.sum(2), CHANNELS, p)
        figures["rows", key] = spread(mask.sum((1, 2)), TOKENS * CHANNELS, p)
        figures["next row", key] = correlation(mask[1:], mask[:-1], p)
        figures["next token", key] = correlation(mask[:, 1:], mask[:, :-1], p)
        for distance in (1, 2, 3, 4, 8, 64):
            pair = (mask[..., distance:], mask[..., :-distance])
            figures[f"channel + {distance}", key] = correlation(*pair, p)
            corner = mask[1:, :, distance:] & mask[1:, :, :-distance]
            other_corner = mask[:-1, :, distance:] & mask[:-1, :, :-distance]
            figures[f"rectangle of {distance}", key] = correlation(corner, other_corner, p**2)
    for place in PLACES[1:]:
        figures["layers", place] = correlation(masks[0, 0], masks[0, place], p)
        figures["steps", place] = correlation(masks[0, place], masks[1, place], p)
    figures["windows"] = correlation(masks[0, 0], dropped(p, step=0, window=1), p)
    figures["seeds"] = correlation(masks[0, 0], dropped(p, step=0, seed=2), p)
    far = {name: figure for name, figure in figures.items() if not abs(figure) < LIMIT}
    assert len(figures) > 180
    assert far == {}


def test_masks_of_attention_are_as_good_as_random():
    p = 0.25
    keys = Keys.of(torch.from_numpy(keys_of_step(step=0)))
    mask = draws(keys, 7, TOKENS, num_places=12) < round(p * 2**16) - 2**15
    # The first head has the place 7
    assert torch.equal(mask[:, 3], draws(keys, 10, TOKENS) < round(p * 2**16) - 2**15)
    above = torch.ones(TOKENS, TOKENS).triu_(1).bool()
    figures = {
        "heads": correlation(mask[:, 1:], mask[:, :-1], p),
        "queries": correlation(mask[:, :, 1:], mask[:, :, :-1], p),
        "keys": correlation(mask[..., 1:], mask[..., :-1], p),
        "both ways": correlation(mask[..., above], mask.transpose(2, 3)[..., above], p),
        "diagonal": correlation(mask[:, :, 1:, 1:], mask[:, :, :-1, :-1], p),
    }
    assert {name: figure for name, figure in figures.items() if not abs(figure) < LIMIT} == {}


def test_all_draws_of_16_bits_are_equally_frequent_and_bits_do_not_depend_on_each_other():
    keys = Keys.of(torch.from_numpy(keys_of_step(step=0, num_rows=200)))
    words = draws(keys, 5, CHANNELS * 2).contiguous().view(torch.int32)
    counts = torch.bincount(words.view(torch.int16).flatten().long() + 2**15, minlength=2**16)
    assert abs(spread(counts, 2 * words.numel(), 2**-16)) < LIMIT
    bits = words.flatten()[:, None] >> torch.arange(32) & 1
    signs = bits.float() * 2 - 1
    correlations = signs.T @ signs / words.numel() ** 0.5
    assert float(correlations.fill_diagonal_(0).abs().max()) < LIMIT
    assert float(signs.mean(0).abs().max()) * words.numel() ** 0.5 < LIMIT


@pytest.mark.slow
def test_no_two_tokens_of_a_run_share_a_key():
    """3.8 million: 20 steps of 3,000 rows of two windows. By chance it would happen in one of 2.5 million
    such runs."""
    keys = []
    for step in range(20):
        for window in (0, 1):
            keys.append(keys_of_step(step, window=window, num_rows=3_000))
    keys = np.stack(keys)
    assert len(np.unique(keys)) == keys.size
    # The lowest bit of the second half is not used
    assert len(np.unique(keys | (1 << 32))) == keys.size


def test_windows_of_a_row_have_their_own_keys():
    first, second = keys_of_rows(StepMasks(1, 0), np.array([5, 5]), np.array([0, 1])).rows
    assert first != second
    assert first == keys_of_rows(StepMasks(1, 0), np.array([5])).rows[0]


def test_keys_of_padded_batches_are_those_of_packed_ones():
    keys = keys_of_step(step=3)
    row_keys_of_step = keys_of_rows(StepMasks(1, 3), np.arange(ROWS)).rows
    on_device = mixed(torch.from_numpy(row_keys_of_step.view(np.int64))[:, None], torch.arange(TOKENS))
    assert torch.equal(on_device, torch.from_numpy(keys))


def test_draws_depend_on_no_shape():
    keys = torch.from_numpy(keys_of_step(step=0))
    numbers = draws(Keys.of(keys), 3, 300)
    assert torch.equal(draws(Keys.of(keys[5:7, 4:]), 3, 77), numbers[5:7, 4:, :77])


# Types of model that call dropout, or attention, in their own ways
SIZES_OF_TYPES = MORE | {
    "bert": {},
    "modernbert": {},
    "big_bird": {},
    "gpt_neox": {},
    "roformer": {},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
}
# Its logits change with padding
del SIZES_OF_TYPES["mobilebert"]


@pytest.mark.parametrize("architecture", SIZES_OF_TYPES)
def test_the_masks_of_a_row_do_not_depend_on_what_is_beside_it(architecture):
    """In float64: alone, with others, longer or shorter, packed and padded."""
    model = tiny_model(architecture, dropout=0.3, **SIZES_OF_TYPES[architecture]).double().train()
    rows = token_rows([5, 9, 30, 3, 17, 8, 8, 1])
    keys = row_keys(8)

    def logits(first: int, last: int, packed: bool) -> Tensor:
        some_keys = RowKeys(keys.rows[first:last], keys.step)
        return model(**collate(rows[first:last], None, model.layout(packed), some_keys))

    expected = logits(0, 8, packed=False)
    for packed in {False, model.can_pack}:
        for size in (1, 3, 8):
            parts = [logits(first, min(first + size, 8), packed) for first in range(0, 8, size)]
            torch.testing.assert_close(torch.cat(parts), expected, atol=1e-12, rtol=1e-12)
    model.eval()
    assert not torch.allclose(logits(0, 8, packed=False), expected, atol=0.01)


def model_of_type(architecture: str, changes: dict) -> Classifier:
    config = AutoConfig.for_model(architecture, **PADDED | TYPES[architecture].sizes | changes)
    return Classifier(AutoModelForSequenceClassification.from_config(config))


def test_what_has_other_masks_in_other_processes_is_named():
    def reason(model: Classifier) -> str:
        return model.why_not_by_row(model.layout(False))

    assert reason(tiny_model("bert", dropout=0.1)) == ""
    bart = model_of_type("bart", {"encoder_layerdrop": 0.1})
    assert "left out for a whole micro-batch" in reason(bart)
    assert reason(model_of_type("bart", {})) == ""
    assert reason(model_of_type("funnel", {})) == "in a funnel model the states of a row cannot be told apart"
    bert = tiny_model("bert", dropout=0.1)
    assert "kernels for attention" in bert.why_not_by_row(bert.layout(True, varlen=True))
    without_dropout = tiny_model("bert")
    assert without_dropout.why_not_by_row(without_dropout.layout(True, varlen=True)) == ""
