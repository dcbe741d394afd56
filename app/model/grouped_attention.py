"""Attention in packed batches, computed in padded groups of rows of similar length, see
`app.batching.grouping`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..runtime.devices import at_least_float32
from .attention_rule import Rule
from .dropout import Keys, attend_with_dropout, draw_keep_mask, scale_where_kept

# Each group has its number of rows, of key heads, and of places in a row
Shapes = list[tuple[int, int, int]]


class GroupMask:
    """The mask of a group. `allowed` is (num_rows, 1, 1 or longest, longest) bool, False where a query may
    not attend; it has the window. None: no query sees padding, except by a causal rule."""

    def __init__(self, allowed: Tensor | None) -> None:
        self.allowed = allowed
        self.kept_bias: Tensor | None = None

    def bias(self, query: Tensor) -> Tensor:
        """Return what is added to the scores of the group, (num_rows * heads, 1 or longest, longest), or (1,
        1, 1) without a mask: 0, and minus infinity where a query may not attend. `query`: (num_rows, heads,
        any, head_size)."""
        if self.kept_bias is not None and self.kept_bias.dtype == query.dtype:
            return self.kept_bias
        if self.allowed is None:
            self.kept_bias = query.new_zeros(1, 1, 1)
            return self.kept_bias
        bias = query.new_zeros(self.allowed.shape).masked_fill_(~self.allowed, float("-inf"))
        heads = query.shape[1]
        bias = bias.expand(-1, heads, -1, -1).flatten(0, 1)
        if bias.shape[1] == 1:
            # The bias of a window is not kept, because it is as large as the scores
            self.kept_bias = bias
        return bias


class MasksOfPass:
    """The masks of the groups of one batch, which the first layer makes for all. It is no dictionary, because
    FSDP hands each layer a copy of those."""

    def __init__(self) -> None:
        self.known_masks: dict[tuple[int | None, bool], list[GroupMask]] = {}

    def masks(self, groups: Mapping, shapes: Shapes, rule: Rule) -> list[GroupMask]:
        """Return the mask of each group for a rule."""
        key = (rule.window, rule.causal)
        if key not in self.known_masks:
            self.known_masks[key] = group_masks(groups, shapes, rule)
        return self.known_masks[key]


@dataclass(frozen=True)
class Groups:
    """The groups of a batch: of each the shapes of queries and of keys, and the mask. For dropout also the
    keys of its queries, (num_rows, num_queries), and the place of the first head in the network."""

    query_shapes: Shapes
    key_shapes: Shapes
    masks: list[GroupMask]
    dropout_keys: list[Keys] | None = None
    place: int = 0


def group_masks(groups: Mapping, shapes: Shapes, rule: Rule) -> list[GroupMask]:
    masks = []
    padding_of_groups = split_groups(groups["is_padding"], shapes)
    for (_, longest, has_padding), is_padding in zip(groups["group_shapes"], padding_of_groups, strict=True):
        # All heads have the padding of the first one
        mask = ~is_padding[:, :1].transpose(2, 3)
        if rule.window is not None and longest > rule.window:
            positions = torch.arange(longest, device=mask.device)
            distance = positions - positions[:, None]
            is_in_window = distance.abs() < rule.window
            if rule.causal:
                is_in_window &= distance <= 0
            # Padding attends to itself: a softmax of nothing would be NaN
            mask = (is_in_window & mask) | (distance == 0)
        elif rule.causal or not has_padding:
            # Rows of one length need no mask, which is slow; nor do causal ones, whose padding comes last
            mask = None
        masks.append(GroupMask(mask))
    return masks


def split_groups(states: Tensor, shapes: Shapes) -> list[Tensor]:
    """Return the states of each group, (num_rows, heads, longest, head_size), of those at all places."""
    places_per_group = [math.prod(shape) for shape in shapes]
    groups = states.split(places_per_group)
    return [group.unflatten(0, shape) for group, shape in zip(groups, shapes, strict=True)]


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


def attend_groups(queries: Tensor, keys: Tensor, values: Tensor, groups: Groups, rule: Rule) -> Tensor:
    """Return the attention of states at places of groups, at such places; the queries of a key head stay
    together."""
    head_size = keys.shape[1]
    heads = groups.key_shapes[0][1]
    shares_keys = queries.shape[1] > head_size
    states_of_groups = zip(
        split_groups(queries, groups.query_shapes),
        split_groups(keys, groups.key_shapes),
        split_groups(values, groups.key_shapes),
        groups.masks,
        groups.dropout_keys or [None] * len(groups.masks),
        strict=True,
    )
    outputs = []
    for query, key, value, mask, dropout_keys in states_of_groups:
        # The queries of a key head become heads of their own
        query = query.unflatten(3, (-1, head_size)).transpose(2, 3).flatten(1, 2)
        if dropout_keys is not None:
            output = attend_with_dropout(query, key, value, mask.allowed, rule, dropout_keys, groups.place)
        else:
            output = scaled_dot_product_attention(
                query,
                key,
                value,
                mask.allowed,
                is_causal=rule.causal and mask.allowed is None,
                scale=rule.scaling,
                enable_gqa=shares_keys,
            )
        output = output.unflatten(1, (heads, -1)).transpose(2, 3).flatten(3)
        outputs.append(output.flatten(0, 2))
    return torch.cat(outputs)


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
            bias = mask.bias(query)
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
