"""Attention in packed batches by one CUDA kernel that takes rows of any length."""

import torch
from torch import Tensor

from ..runtime.devices import is_cuda
from .attention_rule import Rule


def has_varlen_kernels(device: torch.device, head_size: int) -> bool:
    """Return whether torch has kernels for `attend_varlen` on a device: CUDA from 8.0 on, not ROCm."""
    if not is_cuda(device) or torch.version.hip or not torch.backends.cuda.is_flash_attention_available():
        return False
    if head_size % 8 != 0 or head_size > 256:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def attend_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    longest_query: int,
    longest_key: int,
    rule: Rule,
) -> Tensor:
    """Let the tokens of each packed row attend to those of the same row, in one kernel without any padding.

    `query`: (all queries, heads, head_size), returned in the same shape; `key`, `value`: (total_tokens, key
    heads, head_size). `query_offsets`, `key_offsets`: (num_rows + 1,) int32, the start of each row and the
    end of the last, which must be the end of the tensor: tokens after it would get NaN gradients without an
    error (https://github.com/pytorch/pytorch/issues/176793). `longest_query`, `longest_key`: the length of
    the longest row of queries, and of keys. No row may be empty.

    The kernels are those behind torch's `varlen_attn`, which takes neither dropout nor fp32
    (https://github.com/pytorch/pytorch/pull/179390). There is none for windows to both sides in fp32.
    """
    if key.shape[1] != query.shape[1]:
        queries_per_key = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(queries_per_key, 1)
        value = value.repeat_interleave(queries_per_key, 1)
    if query.dtype == torch.float32:
        has_gradient = query.requires_grad or key.requires_grad or value.requires_grad
        outputs = torch.ops.aten._efficient_attention_forward(
            query[None],
            key[None],
            value[None],
            None,  # no bias of the scores
            query_offsets,
            key_offsets,
            longest_query,
            longest_key,
            rule.dropout,
            int(rule.causal),  # 1 stands for a causal mask from the top left
            torch.is_grad_enabled() and has_gradient,
            scale=rule.scaling,
            window_size=rule.window,
        )
        return outputs[0][0]
    window_sizes = {}
    if rule.window is not None:
        farthest = rule.window - 1
        window_sizes["window_size_left"] = farthest
        window_sizes["window_size_right"] = 0 if rule.causal else farthest
    outputs = torch.ops.aten._flash_attention_forward(
        query,
        key,
        value,
        query_offsets,
        key_offsets,
        longest_query,
        longest_key,
        rule.dropout,
        rule.causal,
        False,  # the mask of dropout is not returned
        scale=rule.scaling,
        **window_sizes,
    )
    return outputs[0]
