"""The last layer on packed batches: computed only for the token of each row that the head reads.

The other tokens are still its keys and values. For BERT-base this saves 10 of the last layer's 12
weight-sized matrix products, 7 % of all in a step. Layers with rotary positions attend for all tokens, and
save the feed-forward part.
"""

from functools import cache

import torch
from torch import nn

from .attention import Rule, attend_rows


class ReadTokens:
    """Mixin for a layer of ModernBERT, Llama or Qwen, first in the MRO; padded batches use its forward."""

    def forward(
        self, hidden_states: torch.Tensor, *inputs, read_tokens: torch.Tensor | None = None, **more
    ) -> torch.Tensor:
        """Return (1, num_rows, hidden) of `hidden_states` (1, total_tokens, hidden), `read_tokens`
        (num_rows,)."""
        if read_tokens is None:
            return super().forward(hidden_states, *inputs, **more)
        if hasattr(self, "self_attn"):
            attention, norms = self.self_attn, (self.input_layernorm, self.post_attention_layernorm)
        else:
            attention, norms = self.attn, (self.attn_norm, self.mlp_norm)
        attended, _ = attention(norms[0](hidden_states), *inputs, **more)
        read = (hidden_states + attended).index_select(1, read_tokens)
        return read + self.mlp(norms[1](read))


class FirstTokens:
    """The same for a layer of BERT, ERNIE, ELECTRA or RoBERTa, which attends for first tokens only."""

    def forward(
        self, hidden_states: torch.Tensor, *inputs, read_tokens: torch.Tensor | None = None, **more
    ) -> torch.Tensor:
        if read_tokens is None:
            return super().forward(hidden_states, *inputs, **more)
        # Its gradient is a view; that of [0] would be a copy
        tokens = hidden_states.squeeze(0)
        first = tokens.index_select(0, read_tokens)
        attention = self.attention.self
        sources = ((attention.query, first), (attention.key, tokens), (attention.value, tokens))
        states = [
            project(source).unflatten(-1, (attention.num_attention_heads, -1)) for project, source in sources
        ]
        rule = Rule(attention.dropout.p if attention.training else 0.0, attention.scaling)
        attended = attend_rows(*states, more, rule).flatten(1)
        # The batch dimension is added here, not at the end: FSDP warns about a layer that returns a view.
        return self.feed_forward_chunk(self.attention.output(attended[None], first[None]))


@cache
def _with_read_tokens(layer_class: type, is_bert: bool) -> type:
    bases = (FirstTokens if is_bert else ReadTokens, layer_class)
    return type(layer_class.__name__, bases, {"__module__": layer_class.__module__})


def return_read_tokens_only(layer: nn.Module) -> None:
    """Let a layer return only the states of the tokens that the head reads, for packed batches. Only its
    class changes: parameters keep their names, and a mode can still wrap or copy the layer."""
    layer.__class__ = _with_read_tokens(type(layer), hasattr(layer, "attention"))
