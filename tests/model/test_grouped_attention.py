"""Attention with dropout written out, against the groups one by one: python -m pytest
tests/model/test_grouped_attention.py"""

import pytest
import torch

from app.batching.collate import collate
from app.model.attention import packed_attention
from app.model.grouped_attention import head_layout
from tests.tiny import tiny_model, token_rows

HEADS, SIZE = 3, 8
ROWS = {"one length": [7, 7, 7], "padding": [5, 9, 9, 6], "groups": [2, 30, 3, 17, 30, 4, 1]}


def attend(lengths, dtype, fused: bool, dropout: float):
    """Return the output for random tokens, and the gradients of query, key and value."""
    batch = collate(token_rows(lengths), None, tiny_model().layout(True))
    layout = {name: batch[name] for name in ("group_shapes", "to_padded", "from_padded", "key_mask")}
    torch.manual_seed(3)
    shape = (4, 1, sum(lengths), HEADS, SIZE)
    *states, weights = torch.randn(shape).to(dtype).transpose(2, 3).unbind()
    states = [tensor.requires_grad_() for tensor in states]
    torch.manual_seed(4)
    layout["head_layout"] = head_layout(HEADS, **layout) if fused else None
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output, _ = packed_attention(None, *states, None, dropout=dropout, **layout)
    return [output, *torch.autograd.grad(output, states, weights.transpose(1, 2))]


@pytest.mark.parametrize("lengths", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_masks_outputs_and_gradients(lengths, dtype):
    fused, plain = (attend(lengths, dtype, fused, dropout=0.3) for fused in (True, False))
    for ours, expected in zip(fused, plain, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, expected, rtol=1e-5 if dtype == torch.float32 else 2**-7, atol=1e-6)
    other = attend(lengths, dtype, True, dropout=0.31)
    assert not torch.equal(other[0], fused[0])


@pytest.mark.parametrize("dropout", [0.0, 1e-9, 1.0])
def test_nothing_and_everything_dropped(dropout):
    fused, plain = (attend(ROWS["groups"], torch.float32, fused, dropout) for fused in (True, False))
    assert all(map(torch.equal, fused, plain))
    assert fused[0].any() == (dropout < 1)
