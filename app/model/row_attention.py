"""Attention of rows that are padded in groups of similar length: to all of it, to what is before, or near."""

from collections.abc import Sequence

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

# `dropout` is a probability in transformers' signatures
from .dropout import dropout as drop

# Keys up to which the products written out train faster in bf16 on the CPU than torch's kernel
SHORT = 128


def attend_in_groups(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    queries_per_row: Sequence[int],
    group_shapes: tuple[tuple[int, int, bool], ...],
    key_mask: torch.Tensor,
    dropout: float,
    scaling: float | None,
    causal: bool = False,
    window: int | None = None,
    is_training: bool = False,
) -> torch.Tensor:
    """Let each row's queries attend to the row's keys, one group of rows of similar length at a time.

    `query`: (all queries, heads, head_size), returned in the same shape; `key`, `value`: (padded_tokens,
    heads, head_size); each with one row after the other. `queries_per_row`: for each group, the number of
    queries that each of its rows has. `group_shapes`: for each group, its number of rows, the length they are
    padded to, and whether any has padding. `key_mask`: (padded_tokens,) bool, False for padding. `causal` and
    `window` as in `packed_attention`, for as many queries as keys; `is_training` decides only what is faster.
    """
    key_counts = [num_rows * longest for num_rows, longest, _ in group_shapes]
    query_counts = [
        num_rows * count for (num_rows, _, _), count in zip(group_shapes, queries_per_row, strict=True)
    ]
    groups = (
        query.split(query_counts),
        key.split(key_counts),
        value.split(key_counts),
        key_mask.split(key_counts),
    )
    outputs = []
    for (num_rows, longest, has_padding), *states, group_mask in zip(group_shapes, *groups, strict=True):
        by_row = [tensor.unflatten(0, (num_rows, -1)).transpose(1, 2) for tensor in states]
        if window is not None and longest > window:
            output = attend_in_blocks(
                *by_row,
                group_mask.view(num_rows, longest),
                *(dropout, scaling, causal, window, is_training),
            )
        else:
            # Rows of one length need no mask; it would only slow the kernel down. Nor do causal ones, whose
            # padding comes last.
            mask = group_mask.view(num_rows, 1, 1, longest) if has_padding and not causal else None
            output = attend(*by_row, mask, dropout, scaling, causal, is_training)
        outputs.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)


def attend_in_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_mask: torch.Tensor,
    dropout: float,
    scaling: float | None,
    causal: bool,
    window: int,
    is_training: bool,
) -> torch.Tensor:
    """Let each token attend to those less than `window` away, in time and memory proportional to the tokens.

    `query`, `key`, `value` as in `attend`, with as many queries as keys; `key_mask` (num_rows, longest). Long
    rows are cut into blocks, each with the keys around it; one block is enough for rows up to three windows.
    """
    num_rows, heads, longest, _ = query.shape
    block = longest if longest <= 3 * window else window
    count = -(-longest // block)
    before, after = (0, 0) if count == 1 else (window - 1, 0 if causal else window - 1)
    fill = count * block - longest
    size = before + block + after

    def blocks(states: torch.Tensor) -> torch.Tensor:
        """Return keys or values, (num_rows, heads, longest, any), as (num_rows * count, heads, size, any)."""
        around = pad(states, (0, 0, before, after + fill)).unfold(2, size, block)
        return around.permute(0, 2, 1, 4, 3).flatten(0, 1)

    queries = pad(query, (0, 0, 0, fill)).unflatten(2, (count, block)).transpose(1, 2).flatten(0, 1)
    distance = (
        torch.arange(size, device=query.device) - before - torch.arange(block, device=query.device)[:, None]
    )
    band = (distance.abs() < window) & (distance <= 0 if causal else True)
    real = blocks(key_mask[:, None, :, None].to(torch.uint8)).bool().transpose(2, 3)
    # Padding attends to itself: a softmax of nothing would be NaN
    mask = (band & real) | (distance == 0)
    output = attend(queries, blocks(key), blocks(value), mask, dropout, scaling, False, is_training)
    return output.unflatten(0, (num_rows, count)).transpose(1, 2).flatten(2, 3)[:, :, :longest]


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    scaling: float | None,
    causal: bool = False,
    is_training: bool = False,
) -> torch.Tensor:
    """Return the attention of padded rows, (num_rows, heads, queries, head_size).

    `query` has this shape; `key`, `value`: (num_rows, key heads, keys, head_size); `mask`: (num_rows, 1, 1 or
    queries, keys) bool, False where a query may not attend, or None; `causal` without a mask only.
    """
    is_on_cpu, groups = query.device.type == "cpu", query.shape[1] // key.shape[1]
    is_fast = is_training and query.dtype == torch.bfloat16 and key.shape[2] <= SHORT
    if not (is_on_cpu and (dropout or is_fast)):
        return scaled_dot_product_attention(
            *(query, key, value, mask, dropout), is_causal=causal, scale=scaling, enable_gqa=groups > 1
        )
    if causal:
        longest = query.shape[2]
        mask = torch.ones(longest, longest, dtype=torch.bool).tril().expand(len(query), 1, -1, -1)
    if groups == 1:
        return attend_with_dropout(query, key, value, mask, dropout, scaling)
    # The heads that share a key: as more queries of one head
    queries = query.unflatten(1, (-1, groups)).flatten(2, 3)
    if mask is not None and mask.shape[2] > 1:
        mask = mask.repeat(1, 1, groups, 1)
    return attend_with_dropout(queries, key, value, mask, dropout, scaling).view(query.shape)


def attend_with_dropout(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Return scaled_dot_product_attention with dropout on the CPU, faster; in fp32 inside, as in torch.

    `query`: (num_rows, heads, queries, head_size), returned in the same shape; `key`, `value`: (num_rows,
    heads, longest, head_size); `mask`: (num_rows, 1, 1 or queries, longest) bool, False where a query may not
    attend, or None.
    """
    num_rows, heads, _, head_size = query.shape
    with torch.autocast("cpu", enabled=False):
        queries, keys, values = (
            states.to(torch.float32, memory_format=torch.contiguous_format).reshape(
                num_rows * heads, -1, head_size
            )
            for states in (query, key, value)
        )
        bias = queries.new_zeros(1, 1, 1)
        if mask is not None:
            bias = queries.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
            bias = bias.expand(-1, heads, -1, -1).flatten(0, 1)
        alpha = head_size**-0.5 if scaling is None else scaling
        scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=alpha)
        weights = drop(scores.softmax(-1), dropout)
        return torch.bmm(weights, values).view(query.shape).to(query.dtype)
