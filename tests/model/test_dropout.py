"""Dropout of layers, and of attention in groups of rows."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from app.batching.collate import Layout, collate, keys_of_tokens
from app.model.attention import attend_rows
from app.model.attention_rule import Rule
from app.model.dropout import Drop, Dropout, Keys, MaskSource
from tests.tiny import row_keys, token_rows

BF16 = torch.bfloat16
FP32 = torch.float32


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    ("dtype", "gradient_tolerance", "value_tolerance"), [(FP32, 1e-4, 1e-5), (BF16, 2**-8, 2**-6)]
)
def test_the_fraction_p_is_dropped_and_the_mean_stays(p, dtype, gradient_tolerance, value_tolerance):
    torch.manual_seed(0)
    # No multiple of the two elements of a word
    shape = (1_000, 1_003)
    size = 1_000 * 1_003
    values = torch.rand(shape, dtype=dtype) + 1
    values.requires_grad_()
    dropped = Drop.apply(values, p, Keys.of(token_keys(1_000)), 0)
    dropped.sum().backward()
    assert dropped.dtype == dtype
    zeros = (dropped == 0).sum().item() / size
    assert abs(zeros - p) < 5 * (p * (1 - p) / size) ** 0.5
    # The gradient goes where the value went
    expected = (dropped != 0) / (1 - p)
    torch.testing.assert_close(values.grad.float(), expected, rtol=gradient_tolerance, atol=0)
    torch.testing.assert_close(dropped, values.grad * values, rtol=value_tolerance, atol=0)


def token_keys(num_tokens: int) -> torch.Tensor:
    """Return the keys of the tokens of a row."""
    row_of_token = np.zeros(num_tokens, dtype=np.int64)
    return torch.from_numpy(keys_of_tokens(row_keys(1).rows, row_of_token, np.arange(num_tokens)))


def test_dropout_in_training_needs_keys_and_in_evaluation_does_nothing():
    values = torch.ones(2, 3)
    assert torch.equal(Dropout(0.5).eval()(values), values)
    with pytest.raises(RuntimeError, match="dropout needs the input dropout_keys"):
        Dropout(0.5)(values)


def training_inputs(lengths: tuple[int, ...]) -> dict:
    return collate(token_rows(lengths), None, Layout(packed=True, heads=2), row_keys(len(lengths)))


def source_of(inputs: dict) -> MaskSource:
    return MaskSource(inputs["dropout_keys"], inputs["first_tokens"])


@pytest.mark.parametrize("lengths", [(6, 6, 6), (6, 4, 3)], ids=["no padding", "padding"])
@pytest.mark.parametrize("reads_first", [False, True], ids=["all tokens", "first tokens"])
def test_attention_with_dropout(lengths, reads_first):
    torch.manual_seed(2)
    times = 4000
    query_lengths = lengths
    if reads_first:
        query_lengths = [1, 1, 1]
    query = torch.randn(sum(query_lengths), 2, 8)
    key = torch.randn(sum(lengths), 2, 8)
    value = torch.randn(sum(lengths), 2, 8)
    expected_rows = []
    rows = zip(query.split(query_lengths), key.split(lengths), value.split(lengths), strict=True)
    for row_query, row_key, row_value in rows:
        attended = scaled_dot_product_attention(
            row_query.transpose(0, 1), row_key.transpose(0, 1), row_value.transpose(0, 1), scale=0.3
        )
        expected_rows.append(attended.transpose(0, 1))
    expected = torch.cat(expected_rows)
    inputs = training_inputs(lengths)
    with source_of(inputs).opened(0):
        nothing_dropped = attend_rows(query, key, value, inputs, Rule(1e-9, 0.3))
    torch.testing.assert_close(nothing_dropped, expected, atol=1e-6, rtol=0)
    many_queries = query.repeat(times, 1, 1)
    many_keys = key.repeat(times, 1, 1)
    many_values = value.repeat(times, 1, 1)
    inputs = training_inputs(lengths * times)
    with source_of(inputs).opened(0):
        attended = attend_rows(many_queries, many_keys, many_values, inputs, Rule(0.2, 0.3))
    draws = attended.view(times, *expected.shape)
    assert draws.std(0).max() > 0.1
    torch.testing.assert_close(draws.mean(0), expected, atol=0.06, rtol=0)
