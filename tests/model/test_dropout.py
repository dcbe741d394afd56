"""Dropout of layers, and of attention in groups of rows."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from app.batching.collate import Layout, collate
from app.model.attention import attend_rows
from app.model.attention_rule import Rule
from app.model.dropout import Drop, Dropout
from tests.tiny import token_rows

BF16 = torch.bfloat16
FP32 = torch.float32


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_the_fraction_p_is_dropped_and_the_mean_stays(p, dtype):
    torch.manual_seed(0)
    # No multiple of the four elements of a draw
    size = 1_000_003
    values = torch.rand(size, dtype=dtype) + 1
    values.requires_grad_()
    dropped = Drop.apply(values, p)
    dropped.sum().backward()
    assert dropped.dtype == dtype
    zeros = (dropped == 0).sum().item() / size
    assert abs(zeros - p) < 5 * (p * (1 - p) / size) ** 0.5
    # The gradient goes where the value went
    expected = (dropped != 0) / (1 - p)
    torch.testing.assert_close(values.grad.float(), expected, rtol=1e-4 if dtype == FP32 else 2**-8, atol=0)
    torch.testing.assert_close(dropped, values.grad * values, rtol=1e-5 if dtype == FP32 else 2**-6, atol=0)


def test_the_elements_of_a_draw_do_not_depend_on_each_other():
    torch.manual_seed(0)
    lanes = Drop.apply(torch.ones(400_000), 0.5).view(-1, 4) / 2
    torch.testing.assert_close(torch.cov(lanes.T), torch.eye(4) * 0.25, atol=0.004, rtol=0)
    assert torch.equal(Dropout(0.5).eval()(lanes), lanes)


@pytest.mark.parametrize("lengths", [(6, 6, 6), (6, 4, 3)], ids=["no padding", "padding"])
@pytest.mark.parametrize("of_rows", [False, True], ids=["all tokens", "first tokens"])
def test_attention_with_dropout(lengths, of_rows):
    torch.manual_seed(2)
    times = 4000
    num_queries = 3 if of_rows else sum(lengths)
    query, key, value = (torch.randn(count, 2, 8) for count in (num_queries, sum(lengths), sum(lengths)))
    parts = [query.split([1] * 3 if of_rows else lengths), key.split(lengths), value.split(lengths)]
    by_row = [[states.transpose(0, 1) for states in of_row] for of_row in zip(*parts, strict=True)]
    expected = [scaled_dot_product_attention(*of_row, scale=0.3).transpose(0, 1) for of_row in by_row]
    expected = torch.cat(expected)
    layout = collate(token_rows(lengths), None, Layout(packed=True, heads=2))
    nothing_dropped = attend_rows(query, key, value, layout, Rule(1e-9, 0.3))
    torch.testing.assert_close(nothing_dropped, expected, atol=1e-6, rtol=0)
    many = [states.repeat(times, 1, 1) for states in (query, key, value)]
    layout = collate(token_rows(lengths) * times, None, Layout(packed=True, heads=2))
    draws = attend_rows(*many, layout, Rule(0.2, 0.3)).view(times, *expected.shape)
    assert draws.std(0).max() > 0.1
    torch.testing.assert_close(draws.mean(0), expected, atol=0.06, rtol=0)
