"""Attention with dropout in groups of rows, for the CPU."""

from itertools import islice

import torch
from torch import Tensor

from ..runtime.devices import at_least_float32
from .attention_rule import Rule
from .dropout import draw_keep_mask, scale_where_kept
from .grouped_attention import Groups, split_groups


class DroppedAttention(torch.autograd.Function):
    """`attend_groups` with dropout on the CPU, in fp32 or float64 inside, as in torch; each key head has one
    query.
    Groups are small: what autograd does around each of their products takes as long as the product. So the
    backward pass is written out; its gradients have the bits of autograd's."""

    @staticmethod
    def forward(ctx, queries: Tensor, keys: Tensor, values: Tensor, groups: Groups, rule: Rule) -> Tensor:
        ctx.query_shapes = groups.query_shapes
        ctx.key_shapes = groups.key_shapes
        ctx.num_places = len(keys)
        ctx.dropout = rule.dropout
        ctx.scaling = rule.scaling
        if ctx.scaling is None:
            ctx.scaling = queries.shape[1] ** -0.5
        attended = torch.empty_like(at_least_float32(queries))
        states_of_groups = zip(
            split_groups(at_least_float32(queries), groups.query_shapes),
            split_groups(at_least_float32(keys), groups.key_shapes),
            split_groups(at_least_float32(values), groups.key_shapes),
            split_groups(attended, groups.query_shapes),
            groups.masks,
            groups.dropout_keys,
            strict=True,
        )
        saved = []
        for query, key, value, output, mask, dropout_keys in states_of_groups:
            heads = query.shape[1]
            bias = score_bias(query, mask)
            query = query.flatten(0, 1)
            key = key.flatten(0, 1)
            value = value.flatten(0, 1)
            scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=ctx.scaling)
            weights = scores.softmax(-1)
            keep_mask = draw_keep_mask(weights, rule.dropout, dropout_keys, groups.place, heads)
            dropped = scale_where_kept(weights, keep_mask, rule.dropout)
            torch.bmm(dropped, value, out=output.flatten(0, 1))
            saved += [query, key, value, weights, keep_mask, dropped]
        ctx.save_for_backward(*saved)
        return attended.to(queries.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        attended_gradient = at_least_float32(gradient)
        head_size = gradient.shape[1]
        queries_gradient = torch.empty_like(attended_gradient)
        keys_gradient = attended_gradient.new_empty(ctx.num_places, head_size)
        values_gradient = attended_gradient.new_empty(ctx.num_places, head_size)
        groups = zip(
            split_groups(attended_gradient, ctx.query_shapes),
            split_groups(queries_gradient, ctx.query_shapes),
            split_groups(keys_gradient, ctx.key_shapes),
            split_groups(values_gradient, ctx.key_shapes),
            strict=True,
        )
        saved = iter(ctx.saved_tensors)
        for output_gradient, query_gradient, key_gradient, value_gradient in groups:
            query, key, value, weights, keep_mask, dropped = islice(saved, 6)
            output_gradient = output_gradient.flatten(0, 1)
            dropped_gradient = torch.bmm(output_gradient, value.transpose(1, 2))
            weight_gradient = scale_where_kept(dropped_gradient, keep_mask, ctx.dropout)
            # Autograd, too, calls this for the gradient of a softmax.
            score_gradient = torch.ops.aten._softmax_backward_data(
                weight_gradient, weights, -1, weights.dtype
            )
            # These write into the gradients of all groups
            query_gradient = query_gradient.flatten(0, 1)
            torch.bmm(score_gradient, key, out=query_gradient).mul_(ctx.scaling)
            key_gradient = key_gradient.flatten(0, 1)
            torch.bmm(score_gradient.transpose(1, 2), query, out=key_gradient).mul_(ctx.scaling)
            value_gradient = value_gradient.flatten(0, 1)
            torch.bmm(dropped.transpose(1, 2), output_gradient, out=value_gradient)
        dtype = gradient.dtype
        gradients = (queries_gradient.to(dtype), keys_gradient.to(dtype), values_gradient.to(dtype))
        return *gradients, None, None


def score_bias(query: Tensor, mask: Tensor | None) -> Tensor:
    """Return what is added to the scores of a group, (num_rows * heads, 1 or longest, longest), or (1, 1, 1)
    without a mask: 0, and minus infinity where a query may not attend. `query`: (num_rows, heads, any,
    head_size)."""
    if mask is None:
        return query.new_zeros(1, 1, 1)
    bias = query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
    heads = query.shape[1]
    return bias.expand(-1, heads, -1, -1).flatten(0, 1)
