"""The last layer of a model, which in packed batches computes only the tokens that the head reads."""

from torch import Tensor, nn

from .attention import attend_rows
from .attention_rule import Rule


class ReadTokens:
    """Mixin, first in the MRO, for the last layer: in packed batches it computes only the token of each row
    that the head reads; padded batches use its own forward.

    The other tokens are still its keys and values. For BERT-base this saves 10 of the last layer's 12
    weight-sized matrix products, 7 % of all in a step. Layers with rotary positions (ModernBERT, decoders)
    attend for all tokens, and save the feed-forward part.
    """

    def forward(self, hidden_states: Tensor, *inputs, read_tokens: Tensor | None = None, **options) -> Tensor:
        """Return (1, num_rows, hidden) for `hidden_states` (1, tokens, hidden), `read_tokens` (num_rows,)."""
        if read_tokens is None:
            return super().forward(hidden_states, *inputs, **options)
        if hasattr(self, "attention"):
            return self.attend_as_bert(hidden_states, read_tokens, options)
        if hasattr(self, "self_attn"):
            attention = self.self_attn
            attention_norm = self.input_layernorm
            mlp_norm = self.post_attention_layernorm
        else:
            attention = self.attn
            attention_norm = self.attn_norm
            mlp_norm = self.mlp_norm
        attended, _ = attention(attention_norm(hidden_states), *inputs, **options)
        states = (hidden_states + attended).index_select(1, read_tokens)
        return states + self.mlp(mlp_norm(states))

    def attend_as_bert(self, hidden_states: Tensor, read_tokens: Tensor, row_inputs: dict) -> Tensor:
        """As `forward`, for a layer like BERT's; `row_inputs` as in `attend_rows`."""
        # The gradient of squeeze is a view; that of [0] would be a copy
        token_states = hidden_states.squeeze(0)
        read_states = token_states.index_select(0, read_tokens)
        attention = self.attention.self
        head_shape = (attention.num_attention_heads, -1)
        query = attention.query(read_states).unflatten(-1, head_shape)
        key = attention.key(token_states).unflatten(-1, head_shape)
        value = attention.value(token_states).unflatten(-1, head_shape)
        dropout = attention.dropout.p if attention.training else 0.0
        rule = Rule(dropout=dropout, scaling=attention.scaling)
        attended = attend_rows(query, key, value, row_inputs, rule).flatten(1)
        # The batch dimension is added here, not at the end: FSDP warns about a layer that returns a view.
        return self.feed_forward_chunk(self.attention.output(attended[None], read_states[None]))

    def parts_for_all_tokens(self) -> list[nn.Module]:
        """Return the parts that in packed batches compute something for every token."""
        if hasattr(self, "attention"):
            return [self.attention.self.key, self.attention.self.value]
        return [self.self_attn if hasattr(self, "self_attn") else self.attn]


def return_read_tokens_only(layer: nn.Module) -> None:
    """Let a layer return only the states of the tokens that the head reads, for packed batches. Only its
    class changes: parameters keep their names, and a mode can still wrap or copy the layer."""
    original_class = type(layer)
    members = {"__module__": original_class.__module__}
    layer.__class__ = type(original_class.__name__, (ReadTokens, original_class), members)
