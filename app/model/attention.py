"""Attention over packed batches, registered with transformers so that its stock encoders run without padding.

https://huggingface.co/docs/transformers/attention_interface: a model looks its attention function up by name and hands
it the extra keyword arguments of the forward call; here these are the row layout made by `app.batching.collate`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from app.model.dropout import dropout as drop
from app.model.varlen import attend_varlen

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
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Let each token attend to the tokens of its own row.

    `query`, `key`, `value`: (1, heads, total_tokens, head_size); returns (1, total_tokens, heads, head_size). With
    `row_offsets` they stay as they are. With `group_shapes` they are laid out by row for the attention alone, in groups of
    rows of similar length, each padded to its own longest, (num_rows, heads, longest, head_size). Without either the batch is
    a padded one and transformers' own function does the work.
    """
    if row_offsets is None and group_shapes is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    by_token = [states[0].transpose(0, 1) for states in (query, key, value)]
    if row_offsets is not None:
        return attend_varlen(*by_token, row_offsets, row_offsets, longest, longest, dropout, scaling)[None], None
    padded = [ToRows.apply(states, to_padded, from_padded) for states in by_token]
    queries_of = [longest for _, longest, _ in group_shapes]
    found = attend_in_groups(*padded, queries_of, group_shapes, key_mask, dropout, scaling)
    return FromRows.apply(found, to_padded, from_padded, key_mask)[None], None


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
    """Let the first token of each row attend to the tokens of its own row.

    `module`: the model's self-attention; `query`: (num_rows, heads, head_size); `key`, `value`: (total_tokens, heads,
    head_size); returns (num_rows, heads, head_size).
    """
    dropout = module.dropout.p if module.training else 0.0
    if row_offsets is not None:
        one_each = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
        return attend_varlen(query, key, value, one_each, row_offsets, 1, longest, dropout, module.scaling)
    keys, values = (ToRows.apply(states, to_padded, from_padded) for states in (key, value))
    queries = query.index_select(0, row_order)
    found = attend_in_groups(
        queries, keys, values, [1] * len(group_shapes), group_shapes, key_mask, dropout, module.scaling
    )
    return torch.empty_like(found).index_copy(0, row_order, found)


def attend_in_groups(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    queries_of: Sequence[int],
    group_shapes: tuple[tuple[int, int, bool], ...],
    key_mask: torch.Tensor,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Attend within rows that are laid out in groups; `queries_of` gives each group's number of queries in a row.

    `query`: (queries of all rows, heads, head_size), returned in the same shape; `key`, `value`: (padded_tokens, heads,
    head_size); `key_mask`: (padded_tokens,) bool.
    """
    places = [num_rows * longest for num_rows, longest, _ in group_shapes]
    queries = query.split([shape[0] * count for shape, count in zip(group_shapes, queries_of, strict=True)])
    found = []
    for (num_rows, longest, has_padding), mask, *states in zip(
        group_shapes, key_mask.split(places), queries, key.split(places), value.split(places), strict=True
    ):
        by_row = [part.unflatten(0, (num_rows, -1)).transpose(1, 2) for part in states]
        # Rows of one length need no mask; it would only slow the kernel down.
        seen = mask.view(num_rows, 1, 1, longest) if has_padding else None
        if dropout and query.device.type == "cpu":
            output = attend_with_dropout(*by_row, seen, dropout, scaling)
        else:
            output = scaled_dot_product_attention(*by_row, attn_mask=seen, dropout_p=dropout, scale=scaling)
        found.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(found)


def attend_with_dropout(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    seen: torch.Tensor | None,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Do what scaled_dot_product_attention does with dropout on the CPU, faster; in fp32 inside, as it does.

    `query`: (num_rows, heads, queries, head_size), returned in the same shape; `key`, `value`: (num_rows, heads, longest,
    head_size); `seen`: (num_rows, 1, 1, longest) bool, or None where every key is seen.
    """
    num_rows, heads, _, head_size = query.shape
    with torch.autocast("cpu", enabled=False):
        queries, keys, values = (
            part.to(torch.float32, memory_format=torch.contiguous_format).reshape(num_rows * heads, -1, head_size)
            for part in (query, key, value)
        )
        hidden = queries.new_zeros(1, 1, 1)
        if seen is not None:
            hidden = queries.new_zeros(seen.shape).masked_fill_(~seen, float("-inf"))
            hidden = hidden.expand(num_rows, heads, 1, -1).reshape(num_rows * heads, 1, -1)
        scores = torch.baddbmm(hidden, queries, keys.transpose(1, 2), alpha=scaling or head_size**-0.5)
        weights = drop(scores.softmax(-1), dropout)
        return torch.bmm(weights, values).view(query.shape).to(query.dtype)


class ToRows(torch.autograd.Function):
    """Lay tokens, (total_tokens, ...), out by row, (padded_tokens, ...); padding repeats the first token.

    Padding is neither attended to nor read, so its gradient is 0, and the way back is a selection too: several times
    faster than adding up, which is what the gradient of a selection is in general.
    """

    @staticmethod
    def forward(ctx, tokens: torch.Tensor, to_padded: torch.Tensor, from_padded: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(from_padded)
        return tokens.index_select(0, to_padded)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        return gradient.index_select(0, *ctx.saved_tensors), None, None


class FromRows(torch.autograd.Function):
    """Take the tokens, (total_tokens, ...), out of their rows, (padded_tokens, ...)."""

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
    """Return None for a packed batch (its layout says it all), transformers' own mask for a padded one."""
    return None if attention_mask is None else sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
