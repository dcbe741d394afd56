"""Attention over rows of any length: python -m pytest tests/model/test_varlen.py"""

import pytest
import torch

from app.batching.loader import collate
from app.model import attention
from tests.tiny import tiny_model, token_rows


@pytest.mark.parametrize(
    ("dtype", "heads", "longest_query", "causal", "window"),
    [
        (torch.bfloat16, (2, 2, 2), 7, False, None),
        (torch.bfloat16, (2, 2, 2), 1, False, None),
        (torch.bfloat16, (4, 2, 2), 7, True, None),
        (torch.bfloat16, (4, 2, 2), 7, True, 3),
        (torch.bfloat16, (4, 2, 2), 7, False, 3),
        (torch.float32, (4, 2, 2), 7, True, None),
        (torch.float32, (4, 2, 2), 7, True, 3),
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
    dropout, scale = (0.0, None) if causal or window else (0.1, 0.125)
    rest = (offsets, offsets, longest_query, 7), attention.Rule(dropout, scale, causal, window)
    found = attention.attend_varlen(*states, *rest)
    assert (found.shape, found.dtype) == (states[0].shape, dtype)
    gradients = torch.autograd.grad(found.sum(), states)
    assert [gradient.shape for gradient in gradients] == [part.shape for part in states]
    if not causal and not window:
        with torch.no_grad():
            exact = attention.attend_varlen(*(part.float() for part in states), *rest)
        assert exact.shape == states[0].shape


def test_varlen_kernels_are_those_of_recent_nvidia_gpus(monkeypatch):
    has_kernels, cuda = attention.has_varlen_kernels, torch.device("cuda")
    assert not has_kernels(torch.device("cpu"), 64)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert has_kernels(cuda, 64)
    assert not has_kernels(cuda, 12)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not has_kernels(cuda, 64)


GPU = {"fp32": torch.float32, "bf16": torch.bfloat16}
LOCAL = {"local_attention": 4, "layer_types": ["full_attention", "sliding_attention"]}
MODELS = {"bert": {}, "modernbert": LOCAL, "qwen3": {"num_key_value_heads": 2, "head_dim": 8}}


@pytest.mark.gpu
@pytest.mark.parametrize("architecture", MODELS)
@pytest.mark.parametrize("precision", GPU)
def test_varlen_kernels_do_what_groups_do(precision, architecture):
    """Both are compared with groups in fp32 on the CPU: varlen may be as far from them as groups in the same
    precision, within a factor."""
    rows = token_rows([5, 9, 3, 20, 2, 7, 32])
    found = {}
    for device, name in (("cpu", "grouped"), ("cuda", "grouped"), ("cuda", "varlen")):
        model = tiny_model(architecture, **MODELS[architecture]).train().to(device)
        inputs = collate(rows, None, model.layout(True, varlen=name == "varlen"))
        inputs = {key: value.to(device) if torch.is_tensor(value) else value for key, value in inputs.items()}
        with torch.autocast("cuda", GPU[precision], enabled=precision != "fp32"):
            logits = model(**inputs).float()
        logits.square().sum().backward()
        gradients = {key: value.grad for key, value in model.named_parameters()}
        found[device, name] = {key: value.cpu() for key, value in (gradients | {"logits": logits}).items()}
    for key, exact in found["cpu", "grouped"].items():
        error = (found["cuda", "varlen"][key] - exact).norm()
        rounding = (found["cuda", "grouped"][key] - exact).norm()
        assert error <= 3 * rounding + 1e-5 * exact.norm() + 1e-4, f"{key}: {error}, groups {rounding}"
