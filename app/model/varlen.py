"""Attention within rows of any length that lie end to end, for packed batches on CUDA: torch's own kernels, tried before use."""

from __future__ import annotations

import logging
from functools import cache
from itertools import pairwise

import torch
from torch.nested import nested_tensor_from_jagged
from torch.nn.functional import scaled_dot_product_attention

logger = logging.getLogger(__name__)
TOLERANCES = {torch.float32: 5e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}  # in fp32 for TF32's sake


@cache
def has_varlen_kernels(device: torch.device, head_size: int) -> bool:
    """Return whether torch has kernels for `attend_varlen` on a device, and they do there what attention row by row does.

    They are for CUDA from compute capability 8.0, not for ROCm; they are tried once, because torch does not promise them.
    """
    if device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    if head_size % 8 or head_size > 256:
        return False
    try:
        wrong = [dtype for dtype in TOLERANCES if not varlen_agrees(device, head_size, dtype)]
        problem = f"they are wrong for {wrong}" if wrong else ""
    except (RuntimeError, TypeError, AttributeError) as error:
        problem = str(error).splitlines()[0]
    if problem:
        logger.warning("the kernels for rows of any length are not used on %s: %s", device, problem)
    return not problem


def varlen_agrees(device: torch.device, head_size: int, dtype: torch.dtype) -> bool:
    """Return whether `attend_varlen` has the outputs and the gradients of attention row by row, on rows of 3, 1 and 5 tokens."""
    starts = [0, 3, 4, 9]
    offsets = torch.tensor(starts, dtype=torch.int32, device=device)
    with torch.inference_mode(False), torch.enable_grad():
        numbers = torch.arange(4 * 9 * 2 * head_size, device=device).sin().view(4, 9, 2, head_size)
        *states, weights = (part.to(dtype).clone().requires_grad_() for part in numbers)
        by_row = [
            scaled_dot_product_attention(*(part[start:end].transpose(0, 1)[None] for part in states))[0].transpose(0, 1)
            for start, end in pairwise(starts)
        ]
        figures = []
        for output in (attend_varlen(*states, offsets, offsets, 5, 5, 0.0, None), torch.cat(by_row)):
            figures.append([output, *torch.autograd.grad((output * weights).sum(), states)])
        tolerance = TOLERANCES[dtype]
        return all(torch.allclose(found, wanted, tolerance, tolerance) for found, wanted in zip(*figures, strict=True))


def attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_offsets: torch.Tensor,
    key_offsets: torch.Tensor,
    longest_query: int,
    longest_key: int,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Attend within rows that lie end to end, whatever their lengths, in one kernel without any padding.

    `query`: (queries of all rows, heads, head_size), returned in the same shape; `key`, `value`: (total_tokens, heads,
    head_size); `query_offsets`, `key_offsets`: (num_rows + 1,) int32, where each row begins, and the end of the last, which
    must be that of the tensor: tokens beyond it would get gradients that are not numbers, without an error
    (https://github.com/pytorch/pytorch/issues/176793). No row may be empty.

    The kernels are those that torch's `varlen_attn` and nested tensors call. The first takes no dropout
    (https://github.com/pytorch/pytorch/pull/179390), the others take tens of calls of Python for each layer; they do the
    work where there are no such kernels, slower than groups.
    """
    offsets, longest = (query_offsets, key_offsets), (longest_query, longest_key)
    if query.device.type in ("cpu", "mps"):
        queries, keys, values = (
            nested_tensor_from_jagged(states.contiguous(), starts, min_seqlen=1, max_seqlen=most).transpose(1, 2)
            for states, starts, most in (
                (query, query_offsets, longest_query),
                (key, key_offsets, longest_key),
                (value, key_offsets, longest_key),
            )
        )
        found = scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, scale=scaling)
        return found.transpose(1, 2).values()
    if query.dtype == torch.float32:
        states = (query[None], key[None], value[None])
        grad = torch.is_grad_enabled() and any(part.requires_grad for part in states)
        return torch.ops.aten._efficient_attention_forward(
            *states, None, *offsets, *longest, dropout, 0, grad, scale=scaling
        )[0][0]
    return torch.ops.aten._flash_attention_forward(
        query, key, value, *offsets, *longest, dropout, False, False, scale=scaling
    )[0]
