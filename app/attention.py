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
    to_padded: torch.Tensor | None = None,
    from_padded: torch.Tensor | None = None,
    key_mask: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Let each token attend to the tokens of its own row.

    `query`, `key`, `value`: (1, heads, total_tokens, head_size); returns (1, total_tokens, heads, head_size). The tokens
    are laid out as (num_rows, heads, longest, head_size) for the attention alone: it is a small part of the cost for
    short texts. Without a layout the batch is a padded one and transformers' own function does the work.
    """
    if to_padded is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    num_rows, longest = key_mask.shape[0], key_mask.shape[-1]

    def by_row(states: torch.Tensor) -> torch.Tensor:
        heads, _, size = states.shape[1:]
        return states[0].index_select(1, to_padded).view(heads, num_rows, longest, size).transpose(0, 1)

    # One row, or rows of one length, need no mask; a mask would only slow the kernel down.
    mask = key_mask if to_padded.shape[0] != from_padded.shape[0] else None
    output = scaled_dot_product_attention(
        by_row(query), by_row(key), by_row(value), attn_mask=mask, dropout_p=dropout, scale=scaling
    )
    return output.transpose(1, 2).flatten(0, 1).index_select(0, from_padded)[None], None


def packed_mask(*args, attention_mask: torch.Tensor | None = None, **kwargs) -> torch.Tensor | None:
    """Return None for a packed batch (its layout says it all), transformers' own mask for a padded one."""
    return None if attention_mask is None else sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
