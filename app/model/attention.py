"""Attention over packed batches, registered with transformers so that its own encoders run without padding;
and dropout with fast random numbers for the CPU.

A model looks up its attention function by name and passes it the extra keyword arguments of the forward call
(https://huggingface.co/docs/transformers/attention_interface); here they are the row layout made by
`app.batching.loader`. There are two ways: on CUDA one kernel takes rows of any length, elsewhere rows are
padded in groups of similar length.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..runtime.devices import is_cuda

NAME = "packed_rows"
# These arrays of `collate` describe the rows of a packed batch.
LAYOUT = ("row_offsets", "longest")
LAYOUT += ("group_shapes", "row_order", "to_padded", "from_padded", "key_mask")
LEVELS = 2**16  # a probability of dropout is rounded to a multiple of 1 / LEVELS


class Rule(NamedTuple):
    """How tokens attend: with this probability of dropout, this factor on the scores (None: the usual one),
    if `causal` only to themselves and earlier tokens, with a `window` only to tokens less far away."""

    dropout: float = 0.0
    scaling: float | None = None
    causal: bool = False
    window: int | None = None


def packed_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **inputs
) -> tuple[Tensor, None]:
    """Let each token, of (1, heads, total_tokens, head_size), attend to the tokens of the same row; returns
    (1, total_tokens, heads, head_size). `key` and `value` may have fewer heads, each for several of `query`.
    Without a layout in `inputs` the batch is padded, and transformers' own function is called."""
    layout = {name: inputs.pop(name) for name in LAYOUT if name in inputs}
    window = inputs.get("sliding_window")
    if not layout:
        # transformers makes no mask only where no window is shorter than the rows
        assert attention_mask is not None or (window or query.shape[2]) >= query.shape[2]
        return sdpa_attention_forward(module, query, key, value, attention_mask, **inputs)
    causal = getattr(module, "is_causal", False)
    rule = Rule(inputs.get("dropout", 0.0), inputs.get("scaling"), causal, window)
    # Not states[0]: its gradient would be a tensor of zeros into which the given one is copied.
    # Under autocast rotary positions make float32 of queries and keys.
    states = [states.to(value.dtype).squeeze(0).transpose(0, 1) for states in (query, key, value)]
    return attend_rows(*states, layout, rule)[None], None


def attend_rows(query: Tensor, key: Tensor, value: Tensor, layout: Mapping, rule: Rule) -> Tensor:
    """Let the queries of each packed row attend to the tokens of the row. `query`: (total_tokens, heads,
    head_size) or, of the first token of each row, (num_rows, heads, head_size); returned in the same shape.
    `key`, `value`: (total_tokens, key heads, head_size), all of one dtype."""
    # The CUDA kernels would read other values without an error
    assert query.dtype == key.dtype == value.dtype
    is_of_rows = len(query) < len(key)
    if "row_offsets" in layout:
        offsets, longest = layout["row_offsets"], layout["longest"]
        has_no_kernel = query.dtype == torch.float32 and rule.window is not None and not rule.causal
        if (is_cuda(query.device) or query.is_meta) and not has_no_kernel:
            firsts = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
            rows = (firsts if is_of_rows else offsets, offsets, 1 if is_of_rows else longest, longest)
            return attend_varlen(query, key, value, rows, rule)
        # Without a kernel, rows attend one by one, slowly
        lengths, tokens = offsets.diff().tolist(), torch.arange(len(key), device=key.device)
        layout = {"group_shapes": [(1, length, False) for length in lengths], "key_mask": tokens >= 0}
        layout |= {"to_padded": tokens, "from_padded": tokens, "row_order": tokens[: len(lengths)]}
    shapes, key_mask, row_order = layout["group_shapes"], layout["key_mask"], layout["row_order"]
    order = layout["to_padded"], layout["from_padded"]
    counts = [num_rows * longest for num_rows, longest, _ in shapes]
    query_counts = [num_rows for num_rows, _, _ in shapes] if is_of_rows else counts
    queries = query.index_select(0, row_order) if is_of_rows else Rearrange.apply(query, *order)
    keys, values = (Rearrange.apply(states, *order) for states in (key, value))
    padded = [queries.split(query_counts), *(states.split(counts) for states in (keys, values, key_mask))]
    outputs = []
    for (num_rows, longest, has_padding), *states, group_mask in zip(shapes, *padded, strict=True):
        by_row = [tensor.unflatten(0, (num_rows, -1)).transpose(1, 2) for tensor in states]
        mask, how = group_mask.view(num_rows, 1, 1, longest), rule
        if rule.window is not None and longest > rule.window:
            places = torch.arange(longest, device=key_mask.device)
            distance = places - places[:, None]
            band = (distance.abs() < rule.window) & (distance <= 0 if rule.causal else True)
            # Padding attends to itself: a softmax of nothing would be NaN
            mask, how = (band & mask) | (distance == 0), rule._replace(causal=False)
        elif rule.causal or not has_padding:
            # Rows of one length need no mask, which is slow; nor do causal ones, whose padding comes last.
            mask = None
        outputs.append(attend(*by_row, mask, how).transpose(1, 2).flatten(0, 1))
    attended = torch.cat(outputs)
    if is_of_rows:
        return torch.empty_like(attended).index_copy(0, row_order, attended)
    return Rearrange.apply(attended, *reversed(order), key_mask)


class Rearrange(torch.autograd.Function):
    """Tokens selected by an index, whose gradient is a selection too, several times faster than the
    scatter-add that is the gradient of a selection in general: from packed tokens to rows, padded with the
    first token, by `to_padded`, back by `from_padded`; or the other way, where padding, by `key_mask`, gets
    the gradient 0."""

    @staticmethod
    def forward(ctx, states: Tensor, index: Tensor, back: Tensor, key_mask: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(back, key_mask)
        return states.index_select(0, index)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        back, key_mask = ctx.saved_tensors
        gradient = gradient.index_select(0, back)
        if key_mask is not None:
            gradient.masked_fill_(~key_mask.view(-1, *(1,) * (gradient.dim() - 1)), 0)
        return gradient, None, None, None


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, rule: Rule) -> Tensor:
    """Return the attention of padded rows, (num_rows, heads, queries, head_size). `mask`: (num_rows, 1, 1 or
    queries, keys) bool, False where a query may not attend; it has the window, and is None if causal."""
    has_groups = query.shape[1] != key.shape[1]
    if not rule.dropout or has_groups or rule.causal or query.device.type != "cpu":
        how = {"is_causal": rule.causal, "scale": rule.scaling, "enable_gqa": has_groups}
        return scaled_dot_product_attention(query, key, value, mask, rule.dropout, **how)
    # torch's own dropout takes longer here, see `Drop`. In fp32 inside, as in torch.
    num_rows, heads, _, head_size = query.shape
    with torch.autocast("cpu", enabled=False):
        queries, keys, values = (
            states.to(torch.float32, memory_format=torch.contiguous_format).flatten(0, 1)
            for states in (query, key, value)
        )
        bias = queries.new_zeros(1, 1, 1)
        if mask is not None:
            bias = queries.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
            bias = bias.expand(-1, heads, -1, -1).flatten(0, 1)
        alpha = head_size**-0.5 if rule.scaling is None else rule.scaling
        scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=alpha)
        weights = Drop.apply(scores.softmax(-1), rule.dropout)
        return torch.bmm(weights, values).view(query.shape).to(query.dtype)


def has_varlen_kernels(device: torch.device, head_size: int) -> bool:
    """Return whether torch has kernels for `attend_varlen` on a device: CUDA from 8.0 on, not ROCm."""
    if not is_cuda(device) or torch.version.hip or not torch.backends.cuda.is_flash_attention_available():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0) and head_size % 8 == 0 and head_size <= 256


def attend_varlen(
    query: Tensor, key: Tensor, value: Tensor, rows: tuple[Tensor, Tensor, int, int], rule: Rule
) -> Tensor:
    """Let the tokens of each packed row attend to those of the same row, in one kernel without any padding.

    `query`: (all queries, heads, head_size), returned in the same shape; `key`, `value`: (total_tokens, key
    heads, head_size). `rows`: for the queries, then for the keys, (num_rows + 1,) int32, the start of each
    row and the end of the last, which must be the end of the tensor: tokens after it would get NaN gradients
    without an error (https://github.com/pytorch/pytorch/issues/176793); then the length of the longest row of
    queries, and of keys. No row may be empty.

    The kernels are those behind torch's `varlen_attn`, which takes neither dropout nor fp32
    (https://github.com/pytorch/pytorch/pull/179390). There is none for windows to both sides in fp32.
    """
    dropout_p, scaling, causal, window = rule
    if key.shape[1] != query.shape[1]:
        key, value = (states.repeat_interleave(query.shape[1] // key.shape[1], 1) for states in (key, value))
    if query.dtype == torch.float32:
        states = (query[None], key[None], value[None])
        needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in states)
        # 1 stands for a causal mask from the top left
        outputs = torch.ops.aten._efficient_attention_forward(
            *states, None, *rows, dropout_p, int(causal), needs_grad, scale=scaling, window_size=window
        )
        return outputs[0][0]
    sides = {}
    if window is not None:
        sides = {"window_size_left": window - 1, "window_size_right": 0 if causal else window - 1}
    return torch.ops.aten._flash_attention_forward(
        query, key, value, *rows, dropout_p, causal, False, scale=scaling, **sides
    )[0]


class ReadTokens:
    """Mixin, first in the MRO, for the last layer: in packed batches it computes only the token of each row
    that the head reads; padded batches use its own forward.

    The other tokens are still its keys and values. For BERT-base this saves 10 of the last layer's 12
    weight-sized matrix products, 7 % of all in a step. Layers with rotary positions (ModernBERT, decoders)
    attend for all tokens, and save the feed-forward part.
    """

    def forward(self, hidden_states: Tensor, *inputs, read_tokens: Tensor | None = None, **more) -> Tensor:
        """Return (1, num_rows, hidden) for `hidden_states` (1, tokens, hidden), `read_tokens` (num_rows,)."""
        if read_tokens is None:
            return super().forward(hidden_states, *inputs, **more)
        if not hasattr(self, "attention"):
            if hasattr(self, "self_attn"):
                attention, norms = self.self_attn, (self.input_layernorm, self.post_attention_layernorm)
            else:
                attention, norms = self.attn, (self.attn_norm, self.mlp_norm)
            attended, _ = attention(norms[0](hidden_states), *inputs, **more)
            read = (hidden_states + attended).index_select(1, read_tokens)
            return read + self.mlp(norms[1](read))
        # The gradient of squeeze is a view; that of [0] would be a copy
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


def return_read_tokens_only(layer: nn.Module) -> None:
    """Let a layer return only the states of the tokens that the head reads, for packed batches. Only its
    class changes: parameters keep their names, and a mode can still wrap or copy the layer."""
    kind = type(layer)
    layer.__class__ = type(kind.__name__, (ReadTokens, kind), {"__module__": kind.__module__})


class Drop(torch.autograd.Function):
    """CPU values, any shape, each 0 with the probability `p`, the others scaled up, so that the expected
    value of each stays the same.

    torch draws a Bernoulli number for each element from one thread's Mersenne twister, which takes 7 % of an
    fp32 step of BERT-base. Here four elements share a 64-bit draw of SFC64
    (https://numpy.org/doc/stable/reference/random/bit_generators/sfc64.html), which torch's generator seeds
    for every call, so that `torch.manual_seed` still decides the masks.
    """

    @staticmethod
    def forward(ctx, values: Tensor, p: float) -> Tensor:
        dropped, size = round(p * LEVELS), values.numel()
        seed = int(torch.empty((), dtype=torch.int64).random_())
        draws = np.random.SFC64(seed).random_raw(-(-size // 4)).view(np.int16)[:size]
        draws = torch.from_numpy(draws).view(values.shape)
        # 0 or 1, without the factor of kept elements, which bf16 cannot hold exactly
        kept = torch.ge(draws, dropped - LEVELS // 2, out=torch.empty(values.shape, dtype=values.dtype))
        ctx.save_for_backward(kept)
        ctx.factor = LEVELS / (LEVELS - dropped)
        # values * kept * factor in one pass over memory, inside which the factor is a float32
        return torch.addcmul(values.new_zeros(()), values, kept, value=ctx.factor)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return torch.addcmul(gradient.new_zeros(()), gradient, *ctx.saved_tensors, value=ctx.factor), None


class Dropout(nn.Dropout):
    """nn.Dropout, which calls `Drop` on the CPU."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that nn.Dropout gives it
        is_ours = self.training and 0 < self.p < 1 and input.device.type == "cpu"
        return Drop.apply(input, self.p) if is_ours else super().forward(input)


def replace_dropout(model: nn.Module) -> None:
    """Replace every nn.Dropout of a model by `Dropout`."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))


def packed_mask(*args, attention_mask: Tensor | None = None, **kwargs) -> Tensor | None:
    """Return None for a packed batch, whose layout replaces the mask; for a padded one transformers' mask."""
    return None if attention_mask is None else sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
