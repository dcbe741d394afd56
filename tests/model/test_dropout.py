"""The masks that dropout draws on the CPU: python -m pytest tests/model/test_dropout.py"""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from app.model.attention import Rule, attend
from app.model.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fraction_p_is_dropped_and_the_mean_stays(p, dtype):
    torch.manual_seed(0)
    # No multiple of the four elements of a draw
    size = 1_000_003
    dropped = dropout(torch.ones(size, dtype=dtype), p)
    assert dropped.dtype == dtype
    zeros = (dropped == 0).sum().item() / size
    assert abs(zeros - p) < 5 * math.sqrt(p * (1 - p) / size)
    kept = dropped[dropped != 0]
    assert (kept == kept[0]).all()
    torch.testing.assert_close(
        kept[0].item(), 1 / (1 - p), rtol=1e-4 if dtype == torch.float32 else 2**-8, atol=0
    )


def test_the_elements_of_a_draw_do_not_depend_on_each_other():
    torch.manual_seed(0)
    lanes = dropout(torch.ones(400_000), 0.5).view(-1, 4) / 2
    expected = torch.eye(4) * 0.25
    torch.testing.assert_close(torch.cov(lanes.T), expected, atol=0.004, rtol=0)


def test_nothing_and_everything_dropped():
    values = torch.randn(5, 3)
    assert dropout(values, 0.0) is values
    assert not dropout(values, 1.0).any()
    assert torch.equal(Dropout(0.5).eval()(values), values)


def test_the_gradient_goes_where_the_value_went():
    torch.manual_seed(1)
    values = torch.rand(64, 33, requires_grad=True)
    dropped = dropout(values + 1, 0.3)
    dropped.sum().backward()
    assert torch.equal(values.grad != 0, dropped != 0)
    torch.testing.assert_close(values.grad, dropped.detach() / (values.detach() + 1))


@pytest.mark.parametrize("padding", [False, True], ids=["no padding", "padding"])
def test_attention_with_dropout(padding):
    torch.manual_seed(2)
    query, key, value = (torch.randn(3, 2, count, 8) for count in (4, 6, 6))
    mask = torch.tensor([6, 4, 3])[:, None] > torch.arange(6) if padding else None
    mask = None if mask is None else mask.view(3, 1, 1, 6)
    expected = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
    nothing_dropped = attend(query, key, value, mask, Rule(1e-9, 0.3))
    torch.testing.assert_close(nothing_dropped, expected, atol=1e-6, rtol=0)
    draws = torch.stack([attend(query, key, value, mask, Rule(0.2, 0.3)) for _ in range(4000)])
    assert draws.std(0).max() > 0.1
    torch.testing.assert_close(draws.mean(0), expected, atol=0.06, rtol=0)
