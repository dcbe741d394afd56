"""Attention over packed batches, registered with transformers so that its stock encoders run without padding.

https://huggingface.co/docs/transformers/attention_interface: a model looks its attention function up by name and hands
it the extra keyword arguments of the forward call; here these are the row layout made by `app.collate`.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "packed_rows"


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    group_shapes: tuple[tuple[int, int, bool], ...] | None = None,
    to_padded: torch.Tensor | None = None,
    from_padded: torch.Tensor | None = None,
    key_mask: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Let each token attend to the tokens of its own row.

    `query`, `key`, `value`: (1, heads, total_tokens, head_size); returns (1, total_tokens, heads, head_size). For the
    attention alone the tokens are laid out by row, in groups of rows of similar length, each padded to its own longest
    (num_rows, heads, longest, head_size). Without a layout the batch is a padded one and transformers' own function does
    the work.
    """
    if group_shapes is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    padded = [ToRows.apply(states[0].transpose(0, 1), to_padded, from_padded) for states in (query, key, value)]
    sizes = [num_rows * longest for num_rows, longest, _ in group_shapes]
    found = []
    for (num_rows, longest, has_padding), mask, *states in zip(
        group_shapes, key_mask.split(sizes), *(part.split(sizes) for part in padded), strict=True
    ):
        by_row = [part.unflatten(0, (num_rows, longest)).transpose(1, 2) for part in states]
        # Rows of one length need no mask; it would only slow the kernel down.
        seen = mask.view(num_rows, 1, 1, longest) if has_padding else None
        output = scaled_dot_product_attention(*by_row, attn_mask=seen, dropout_p=dropout, scale=scaling)
        found.append(output.transpose(1, 2).flatten(0, 1))
    return FromRows.apply(torch.cat(found), to_padded, from_padded, key_mask)[None], None


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
