"""Attention over packed batches, registered with transformers so that its own encoders run without padding.

A model looks up its attention function by name and passes it the extra keyword arguments of the forward call
(https://huggingface.co/docs/transformers/attention_interface); here they are the row layout made by
`app.batching.collate`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from .dropout import LEVELS, levels

# `dropout` is a probability in transformers' signatures
from .dropout import dropout as drop
from .grouped_attention import GroupedAttention, HeadLayout
from .varlen import attend_varlen

NAME = "packed_rows"


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    row_offsets: torch.Tensor | None = None,
    longest: int = 0,
    group_shapes: tuple[tuple[int, int, bool], ...] | None = None,
    to_padded: torch.Tensor | None = None,
    from_padded: torch.Tensor | None = None,
    key_mask: torch.Tensor | None = None,
    head_layout: HeadLayout | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Let each token attend to the tokens of the same row.

    `query`, `key`, `value`: (1, heads, total_tokens, head_size); returns (1, total_tokens, heads, head_size).
    With `row_offsets` a variable-length kernel takes them packed. With `group_shapes` they are laid out by
    row, in groups of rows of similar length, each group padded to its longest row, and with `head_layout`
    dropout is computed by one function for all groups. Without either, the batch is padded and transformers'
    own function is called.
    """
    if row_offsets is None and group_shapes is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    # Not states[0]: its gradient would be a tensor of zeros into which the given one is copied.
    by_token = [states.squeeze(0).transpose(0, 1) for states in (query, key, value)]
    if row_offsets is not None:
        return attend_varlen(*by_token, row_offsets, row_offsets, longest, longest, dropout, scaling)[
            None
        ], None
    if head_layout is not None and 0 < levels(dropout) < LEVELS:
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        return GroupedAttention.apply(*by_token, head_layout, levels(dropout), scaling)[None], None
    by_row = [ToRows.apply(states, to_padded, from_padded) for states in by_token]
    queries_per_row = [longest for _, longest, _ in group_shapes]
    attended = attend_in_groups(*by_row, queries_per_row, group_shapes, key_mask, dropout, scaling)
    return FromRows.apply(attended, to_padded, from_padded, key_mask)[None], None


def first_token_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    row_offsets: torch.Tensor | None = None,
    longest: int = 0,
    group_shapes: tuple[tuple[int, int, bool], ...] | None = None,
    row_order: torch.Tensor | None = None,
    to_padded: torch.Tensor | None = None,
    from_padded: torch.Tensor | None = None,
    key_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Let the first token of each row attend to the tokens of the same row.

    `module`: the model's self-attention; `query`: (num_rows, heads, head_size); `key`, `value`:
    (total_tokens, heads, head_size); returns (num_rows, heads, head_size).
    """
    dropout = module.dropout.p if module.training else 0.0
    if row_offsets is not None:
        query_offsets = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
        return attend_varlen(
            query, key, value, query_offsets, row_offsets, 1, longest, dropout, module.scaling
        )
    keys, values = (ToRows.apply(states, to_padded, from_padded) for states in (key, value))
    queries = query.index_select(0, row_order)
    queries_per_row = [1] * len(group_shapes)
    attended = attend_in_groups(
        queries, keys, values, queries_per_row, group_shapes, key_mask, dropout, module.scaling
    )
    return torch.empty_like(attended).index_copy(0, row_order, attended)


def attend_in_groups(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    queries_per_row: Sequence[int],
    group_shapes: tuple[tuple[int, int, bool], ...],
    key_mask: torch.Tensor,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Let each row's queries attend to the row's keys, one group of rows of similar length at a time.

    `query`: (all queries, heads, head_size), returned in the same shape; `key`, `value`: (padded_tokens,
    heads, head_size); each with one row after the other. `queries_per_row`: for each group, the number of
    queries that each of its rows has. `group_shapes`: for each group, its number of rows, the length they are
    padded to, and whether any has padding. `key_mask`: (padded_tokens,) bool, False for padding.
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
        # Rows of one length need no mask; it would only slow the kernel down.
        mask = group_mask.view(num_rows, 1, 1, longest) if has_padding else None
        if dropout and query.device.type == "cpu":
            output = attend_with_dropout(*by_row, mask, dropout, scaling)
        else:
            output = scaled_dot_product_attention(*by_row, attn_mask=mask, dropout_p=dropout, scale=scaling)
        outputs.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)


def attend_with_dropout(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Return scaled_dot_product_attention with dropout on the CPU, computed faster; in fp32 inside, as torch
    does it.

    `query`: (num_rows, heads, queries, head_size), returned in the same shape; `key`, `value`: (num_rows,
    heads, longest, head_size); `mask`: (num_rows, 1, 1, longest) bool, False for padding, or None where there
    is no padding.
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
            bias = bias.expand(num_rows, heads, 1, -1).reshape(num_rows * heads, 1, -1)
        alpha = head_size**-0.5 if scaling is None else scaling
        scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=alpha)
        weights = drop(scores.softmax(-1), dropout)
        return torch.bmm(weights, values).view(query.shape).to(query.dtype)


class ToRows(torch.autograd.Function):
    """From packed tokens, (total_tokens, ...), to padded rows, (padded_tokens, ...); padding repeats the
    first token.

    No output depends on padding, so its gradient is 0 and the backward pass can be a selection too, several
    times faster than the scatter-add that is the gradient of a selection in general.
    """

    @staticmethod
    def forward(
        ctx, tokens: torch.Tensor, to_padded: torch.Tensor, from_padded: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(from_padded)
        return tokens.index_select(0, to_padded)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        return gradient.index_select(0, *ctx.saved_tensors), None, None


class FromRows(torch.autograd.Function):
    """From padded rows, (padded_tokens, ...), to packed tokens, (total_tokens, ...)."""

    @staticmethod
    def forward(
        ctx, rows: torch.Tensor, to_padded: torch.Tensor, from_padded: torch.Tensor, key_mask: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(to_padded, key_mask)
        return rows.index_select(0, from_padded)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        to_padded, key_mask = ctx.saved_tensors
        by_row = gradient.index_select(0, to_padded)
        padding = ~key_mask.view(-1, *(1,) * (by_row.dim() - 1))
        return by_row.masked_fill_(padding, 0), None, None, None


def packed_mask(*args, attention_mask: torch.Tensor | None = None, **kwargs) -> torch.Tensor | None:
    """Return None for a packed batch, whose layout replaces the mask, and transformers' own mask for a padded
    one."""
    return None if attention_mask is None else sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
