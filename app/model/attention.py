"""Attention over packed batches, registered with transformers so that its own encoders run without padding.

A model looks up its attention function by name and passes it the extra keyword arguments of the forward call
(https://huggingface.co/docs/transformers/attention_interface); here they are the row layout made by
`app.batching.collate`.
"""

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from .dropout import LEVELS, levels
from .grouped_attention import GroupedAttention, HeadLayout
from .row_attention import attend_in_groups
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
    sliding_window: int | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Let each token attend to the tokens of the same row: to all, or where the module says `is_causal` to
    itself and those before; with `sliding_window` only to those less far away.

    `query`, `key`, `value`: (1, heads, total_tokens, head_size); returns (1, total_tokens, heads, head_size).
    `key` and `value` may have fewer heads, each for several of `query` in a row.
    With `row_offsets` a variable-length kernel takes them packed. With `group_shapes` they are laid out by
    row, in groups of rows of similar length, each group padded to its longest row, and with `head_layout`
    dropout is computed by one function for all groups. Without either, the batch is padded and transformers'
    own function is called.
    """
    causal = getattr(module, "is_causal", False)
    if row_offsets is None and group_shapes is None:
        # transformers makes no mask only where no window is shorter than the rows
        assert attention_mask is not None or (sliding_window or query.shape[2]) >= query.shape[2]
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    # Not states[0]: its gradient would be a tensor of zeros into which the given one is copied.
    by_token = [states.squeeze(0).transpose(0, 1) for states in (query, key, value)]
    if row_offsets is not None:
        rows = (row_offsets, row_offsets, longest, longest)
        return attend_varlen(*by_token, *rows, dropout, scaling, causal, sliding_window)[None], None
    if head_layout is not None and 0 < levels(dropout) < LEVELS:
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        return GroupedAttention.apply(*by_token, head_layout, levels(dropout), scaling)[None], None
    by_row = [ToRows.apply(states, to_padded, from_padded) for states in by_token]
    queries_per_row = [longest for _, longest, _ in group_shapes]
    attended = attend_in_groups(
        *by_row,
        *(queries_per_row, group_shapes, key_mask, dropout, scaling, causal, sliding_window),
        getattr(module, "training", False),
    )
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
    """Let the first token of each row, (num_rows, heads, head_size), attend to the tokens of its row; `key`,
    `value` (total_tokens, heads, head_size). `module` is the model's self-attention."""
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
        *(queries, keys, values, queries_per_row, group_shapes, key_mask, dropout, module.scaling),
        is_training=module.training,
    )
    return torch.empty_like(attended).index_copy(0, row_order, attended)


class ToRows(torch.autograd.Function):
    """Packed tokens, (total_tokens, ...) -> rows, (padded_tokens, ...), padded with the first token.

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
    """Return None for a packed batch, whose layout replaces the mask; for a padded one transformers' mask."""
    return None if attention_mask is None else sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
