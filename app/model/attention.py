"""Attention over packed batches, registered with transformers so that its own encoders run without padding;
and dropout with fast random numbers for the CPU.

A model looks up its attention function by name and passes it the extra keyword arguments of the forward call
(https://huggingface.co/docs/transformers/attention_interface); here they are the row layout made by
`app.batching.collate`. There are two ways: on CUDA one kernel takes rows of any length, elsewhere rows are
padded in groups of similar length.
"""

import math
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..batching.grouping import group_rows
from ..batching.loader import to_device
from ..runtime.devices import is_cuda

NAME = "packed_rows"
# These arrays of `collate` describe the rows of a packed batch.
LAYOUT = ("row_offsets", "longest")
LAYOUT += ("group_shapes", "row_order", "to_padded", "from_padded", "is_padding")
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
    is_of_rows, heads = len(query) < len(key), key.shape[1]
    if "row_offsets" in layout:
        offsets, longest = layout["row_offsets"], layout["longest"]
        has_no_kernel = query.dtype == torch.float32 and rule.window is not None and not rule.causal
        if (is_cuda(query.device) or query.is_meta) and not has_no_kernel:
            firsts = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
            rows = (firsts if is_of_rows else offsets, offsets, 1 if is_of_rows else longest, longest)
            return attend_varlen(query, key, value, rows, rule)
        layout = to_device(group_rows(offsets.diff().long().cpu().numpy(), heads), query.device)
    row_order, order = layout["row_order"], (layout["to_padded"], layout["from_padded"])
    # The queries of one key head stay together, (tokens, key heads, any).
    size, shares_keys = query.shape[2], query.shape[1] > heads
    query = query.unflatten(1, (heads, -1)).flatten(2)
    if is_of_rows:
        queries = query.index_select(0, row_order).flatten(0, 1)
    else:
        queries = Rearrange.apply(query.flatten(0, 1), *order)
    keys, values = (Rearrange.apply(states.flatten(0, 1), *order) for states in (key, value))
    shapes = [(num_rows, heads, longest) for num_rows, longest, _ in layout["group_shapes"]]
    query_shapes = [(num_rows, heads, 1) for num_rows, *_ in shapes] if is_of_rows else shapes
    states = queries, keys, values, query_shapes, shapes, group_masks(layout, shapes, rule), rule
    if rule.dropout and query.device.type == "cpu" and not rule.causal and not shares_keys:
        with torch.autocast("cpu", enabled=False):
            attended = DroppedAttention.apply(*states)
    else:
        attended = attend_groups(*states)
    if is_of_rows:
        attended = attended.unflatten(0, (-1, heads))
        attended = torch.empty_like(attended).index_copy(0, row_order, attended)
    else:
        attended = Rearrange.apply(attended, *reversed(order), layout["is_padding"])
    return attended.view(len(query), -1, size)


def group_masks(layout: Mapping, shapes: list, rule: Rule) -> list[Tensor | None]:
    """Return the mask of each group, (num_rows, 1, 1 or longest, longest) bool, False where a query may not
    attend; it has the window. None: no query sees padding, except by a causal rule."""
    masks = []
    of_groups = zip(layout["group_shapes"], split(layout["is_padding"], shapes), strict=True)
    for (_, longest, has_padding), is_padding in of_groups:
        mask = ~is_padding[:, :1].transpose(2, 3)
        if rule.window is not None and longest > rule.window:
            places = torch.arange(longest, device=mask.device)
            distance = places - places[:, None]
            band = (distance.abs() < rule.window) & (distance <= 0 if rule.causal else True)
            # Padding attends to itself: a softmax of nothing would be NaN
            masks.append((band & mask) | (distance == 0))
        else:
            # Rows of one length need no mask, which is slow; nor do causal ones, whose padding comes last.
            masks.append(None if rule.causal or not has_padding else mask)
    return masks


def split(places: Tensor, shapes: list[tuple[int, int, int]]) -> list[Tensor]:
    """Return the states of each group, (num_rows, heads, longest, head_size), of those at all places."""
    parts = places.split([math.prod(shape) for shape in shapes])
    return [part.unflatten(0, shape) for part, shape in zip(parts, shapes, strict=True)]


class Rearrange(torch.autograd.Function):
    """States selected by an index, whose gradient is a selection too, several times faster than the
    scatter-add that is the gradient of a selection in general: from packed tokens to the places of padded
    groups by `to_padded`, back by `from_padded`; or the other way, where padding gets the gradient 0."""

    @staticmethod
    def forward(ctx, states: Tensor, index: Tensor, back: Tensor, is_padding: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(back, is_padding)
        return states.index_select(0, index)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        back, is_padding = ctx.saved_tensors
        gradient = gradient.index_select(0, back)
        if is_padding is not None:
            gradient.masked_fill_(is_padding, 0)
        return gradient, None, None, None


def attend_groups(
    queries: Tensor, keys: Tensor, values: Tensor, query_shapes: list, shapes: list, masks: list, rule: Rule
) -> Tensor:
    """Return the attention of states at places of groups, at such places; the queries of a key head stay
    together. `query_shapes`, `shapes`: of each group the rows, key heads and places of a row."""
    size, heads = keys.shape[1], shapes[0][1]
    how = {"dropout_p": rule.dropout, "scale": rule.scaling, "enable_gqa": queries.shape[1] > size}
    groups, outputs = (split(queries, query_shapes), split(keys, shapes), split(values, shapes)), []
    for query, key, value, mask in zip(*groups, masks, strict=True):
        query = query.unflatten(3, (-1, size)).transpose(2, 3).flatten(1, 2)
        is_causal = rule.causal and mask is None
        output = scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, **how)
        outputs.append(output.unflatten(1, (heads, -1)).transpose(2, 3).flatten(3).flatten(0, 2))
    return torch.cat(outputs)


class DroppedAttention(torch.autograd.Function):
    """`attend_groups` with dropout on the CPU, in fp32 inside, as in torch; each key head has one query.
    Groups are small: what autograd does around each of their products takes as long as the product. So the
    backward pass is written out; its gradients have the bits of autograd's."""

    @staticmethod
    def forward(
        ctx,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        query_shapes: list,
        shapes: list,
        masks: list,
        rule: Rule,
    ) -> Tensor:
        ctx.query_shapes, ctx.shapes, ctx.dropout = query_shapes, shapes, rule.dropout
        ctx.scaling = queries.shape[1] ** -0.5 if rule.scaling is None else rule.scaling
        attended, saved = torch.empty_like(queries, dtype=torch.float32), []
        groups = split(queries.float(), query_shapes), split(keys.float(), shapes)
        groups += split(values.float(), shapes), split(attended, query_shapes)
        for *states, mask in zip(*groups, masks, strict=True):
            query, key, value, output = (part.flatten(0, 1) for part in states)
            bias = query.new_zeros(1, 1, 1)
            if mask is not None:
                bias = query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
                bias = bias.expand(-1, states[0].shape[1], -1, -1).flatten(0, 1)
            weights = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=ctx.scaling).softmax(-1)
            kept = draw_kept(weights, rule.dropout)
            dropped = scale_kept(weights, kept, rule.dropout)
            torch.bmm(dropped, value, out=output)
            saved += [query, key, value, weights, kept, dropped]
        ctx.save_for_backward(*saved)
        return attended.to(queries.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        of_attended, saved = gradient.float(), iter(ctx.saved_tensors)
        of_queries = torch.empty_like(of_attended)
        num_places = sum(math.prod(shape) for shape in ctx.shapes)
        of_keys, of_values = of_attended.new_empty(2, num_places, of_attended.shape[1])
        groups = split(of_attended, ctx.query_shapes), split(of_queries, ctx.query_shapes)
        groups += split(of_keys, ctx.shapes), split(of_values, ctx.shapes)
        for parts in zip(*groups, strict=True):
            of_output, of_query, of_key, of_value = (part.flatten(0, 1) for part in parts)
            query, key, value, weights, kept, dropped = islice(saved, 6)
            of_weights = scale_kept(torch.bmm(of_output, value.transpose(1, 2)), kept, ctx.dropout)
            # Autograd, too, calls this for the gradient of a softmax.
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            torch.bmm(of_scores, key, out=of_query).mul_(ctx.scaling)
            torch.bmm(of_scores.transpose(1, 2), query, out=of_key).mul_(ctx.scaling)
            torch.bmm(dropped.transpose(1, 2), of_output, out=of_value)
        return *(states.to(gradient.dtype) for states in (of_queries, of_keys, of_values)), *(None,) * 4


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


def draw_kept(values: Tensor, p: float) -> Tensor:
    """Return for each of `values`, on the CPU, 0 with the probability `p`, else 1.

    torch draws a Bernoulli number for each element from one thread's Mersenne twister, which takes 7 % of an
    fp32 step of BERT-base. Here four elements share a 64-bit draw of SFC64
    (https://numpy.org/doc/stable/reference/random/bit_generators/sfc64.html), which torch's generator seeds
    for every call, so that `torch.manual_seed` still decides the masks.
    """
    size = values.numel()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    draws = np.random.SFC64(seed).random_raw(-(-size // 4)).view(np.int16)[:size]
    draws = torch.from_numpy(draws).view(values.shape)
    return torch.ge(draws, round(p * LEVELS) - LEVELS // 2, out=torch.empty(values.shape, dtype=values.dtype))


def scale_kept(values: Tensor, kept: Tensor, p: float) -> Tensor:
    """Return 0 where `kept` is 0, else the value times 1 / (1 - p), in one pass over memory. The factor is a
    float32; bf16, the dtype of `kept` and values, could not hold it exactly."""
    factor = LEVELS / (LEVELS - round(p * LEVELS))
    return torch.addcmul(values.new_zeros(()), values, kept, value=factor)


class Drop(torch.autograd.Function):
    """CPU values, any shape, each 0 with the probability `p`, the others scaled up, so that the expected
    value of each stays the same."""

    @staticmethod
    def forward(ctx, values: Tensor, p: float) -> Tensor:
        kept = draw_kept(values, p)
        ctx.save_for_backward(kept)
        ctx.p = p
        return scale_kept(values, kept, p)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return scale_kept(gradient, *ctx.saved_tensors, ctx.p), None


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
