"""The kernels that take rows of any length: what they are given, and where there are any."""

import pytest
import torch

from app.model.attention_rule import Rule
from app.model.varlen_attention import attend_varlen, has_varlen_kernels

BF16 = torch.bfloat16
FP32 = torch.float32


@pytest.mark.parametrize(
    ("dtype", "heads", "longest_query", "causal", "window"),
    [
        *((BF16, (2, 2, 2), 7, False, None), (BF16, (2, 2, 2), 1, False, None)),
        *((BF16, (4, 2, 2), 7, True, None), (BF16, (4, 2, 2), 7, True, 3), (BF16, (4, 2, 2), 7, False, 3)),
        *((FP32, (2, 2, 2), 7, False, None), (FP32, (4, 2, 2), 7, True, None), (FP32, (4, 2, 2), 7, True, 3)),
    ],
)
def test_varlen_kernels_take_what_they_are_given(dtype, heads, longest_query, causal, window):
    """No values, only shapes: torch checks the arguments of its CUDA kernels on the meta device."""
    offsets = torch.empty(4, dtype=torch.int32, device="meta")
    queries = 16 if longest_query == 7 else 3
    states = [
        torch.empty(tokens, number, 64, device="meta", dtype=dtype, requires_grad=True)
        for tokens, number in zip((queries, 16, 16), heads, strict=True)
    ]
    rule = Rule(*((0.0, None) if causal or window else (0.1, 0.125)), causal, window)
    found = attend_varlen(*states, offsets, offsets, longest_query, 7, rule)
    assert (found.shape, found.dtype) == (states[0].shape, dtype)
    if dtype == FP32 and rule.scaling:
        # torch's backward pass with a factor works on a GPU, not on the meta device
        return
    gradients = torch.autograd.grad(found.sum(), states)
    assert [gradient.shape for gradient in gradients] == [part.shape for part in states]


def test_varlen_kernels_are_those_of_recent_nvidia_gpus(monkeypatch):
    cuda = torch.device("cuda")
    assert not has_varlen_kernels(torch.device("cpu"), 64)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    for capability, head_size, expected in (((9, 0), 64, True), ((9, 0), 12, False), ((7, 5), 64, False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        assert has_varlen_kernels(cuda, head_size) == expected
