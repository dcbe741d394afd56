"""The kernels that take rows of any length: what they are given, and where there are any."""

import pytest
import torch

from app.model.attention_rule import Rule
from app.model.varlen_attention import attend_varlen, has_varlen_kernels

BF16 = torch.bfloat16
FP32 = torch.float32


# dtype, heads of queries, keys and values, longest row of queries, causal, window
CASES = [
    (BF16, (2, 2, 2), 7, False, None),
    (BF16, (2, 2, 2), 1, False, None),
    (BF16, (4, 2, 2), 7, True, None),
    (BF16, (4, 2, 2), 7, True, 3),
    (BF16, (4, 2, 2), 7, False, 3),
    (FP32, (2, 2, 2), 7, False, None),
    (FP32, (4, 2, 2), 7, True, None),
    (FP32, (4, 2, 2), 7, True, 3),
]


@pytest.mark.parametrize(("dtype", "heads", "longest_query", "causal", "window"), CASES)
def test_varlen_kernels_take_what_they_are_given(dtype, heads, longest_query, causal, window):
    """No values, only shapes: torch checks the arguments of its CUDA kernels on the meta device."""
    offsets = torch.empty(4, dtype=torch.int32, device="meta")
    num_queries = 16
    if longest_query == 1:
        num_queries = 3
    states = []
    for num_tokens, num_heads in zip((num_queries, 16, 16), heads, strict=True):
        shape = (num_tokens, num_heads, 64)
        states.append(torch.empty(shape, device="meta", dtype=dtype, requires_grad=True))
    query, key, value = states
    rule = Rule(dropout=0.1, scaling=0.125)
    if causal or window:
        rule = Rule(causal=causal, window=window)
    attended = attend_varlen(query, key, value, offsets, offsets, longest_query, 7, rule)
    assert (attended.shape, attended.dtype) == (query.shape, dtype)
    if dtype == FP32 and rule.scaling:
        # torch's backward pass with a factor works on a GPU, not on the meta device
        return
    gradients = torch.autograd.grad(attended.sum(), states)
    for gradient, state in zip(gradients, states, strict=True):
        assert gradient.shape == state.shape


def test_varlen_kernels_are_those_of_recent_nvidia_gpus(monkeypatch):
    cuda = torch.device("cuda")
    assert not has_varlen_kernels(torch.device("cpu"), 64)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert has_varlen_kernels(cuda, 64)
    assert not has_varlen_kernels(cuda, 12)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not has_varlen_kernels(cuda, 64)
