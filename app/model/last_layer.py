"""The encoder's last layer on packed batches: computed for each row's first token only, because the head
reads no other.

The other tokens are still its keys and values. For BERT-base this saves 10 of the last layer's 12
weight-sized matrix products, 7 % of all in a step.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from .attention import first_token_attention

# The arguments of `first_token_attention` that describe a packed batch, for varlen or grouped attention.
LAYOUT = {"row_offsets", "longest"} | {"group_shapes", "row_order", "to_padded", "from_padded", "key_mask"}


class FirstTokens:
    """Mixin for a layer of transformers' BERT, ELECTRA or RoBERTa, first in the MRO; padded batches use the
    original forward."""

    def forward(
        self, hidden_states: torch.Tensor, *inputs, first_tokens: torch.Tensor | None = None, **more
    ) -> torch.Tensor:
        """Return (1, num_rows, hidden) for `hidden_states` (1, total_tokens, hidden) and `first_tokens`
        (num_rows,)."""
        if first_tokens is None:
            return super().forward(hidden_states, *inputs, **more)
        # Its gradient is a view; that of [0] would be a copy
        tokens = hidden_states.squeeze(0)
        first = tokens.index_select(0, first_tokens)
        attention = self.attention.self
        states = [
            projection(source).unflatten(-1, (attention.num_attention_heads, -1))
            for projection, source in (
                (attention.query, first),
                (attention.key, tokens),
                (attention.value, tokens),
            )
        ]
        attended = first_token_attention(
            attention, *states, **{name: more[name] for name in LAYOUT & set(more)}
        ).flatten(1)
        # The batch dimension is added here, not at the end: FSDP warns about a layer that returns a view.
        return self.feed_forward_chunk(self.attention.output(attended[None], first[None]))


def return_first_tokens_only(layer: nn.Module) -> None:
    """Let a layer return only the states of first tokens for packed batches.

    Only its class changes: parameters keep their names, and a mode can still wrap, copy or replicate the
    layer.
    """
    layer.__class__ = _with_first_tokens(type(layer))


@cache
def _with_first_tokens(layer_class: type) -> type:
    return type(layer_class.__name__, (FirstTokens, layer_class), {"__module__": layer_class.__module__})
