"""Attention in packed batches, computed in padded groups of rows of similar length, see
`app.batching.grouping`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .attention_rule import Rule
from .dropout import attend_with_dropout
from .random_masks import Keys

# Each group has its number of rows, of key heads, and of places in a row
Shapes = list[tuple[int, int, int]]


@dataclass(frozen=True)
class Groups:
    """The groups of a batch: of each the shapes of queries and of keys, and the mask. For dropout also the
    keys of its queries, (num_rows, num_queries), and the place of the first head in the network."""

    query_shapes: Shapes
    key_shapes: Shapes
    masks: list[Tensor | None]
    dropout_keys: list[Keys] | None = None
    place: int = 0


def group_masks(groups: Mapping, shapes: Shapes, rule: Rule) -> list[Tensor | None]:
    """Return the mask of each group, (num_rows, 1, 1 or longest, longest) bool, False where a query may not
    attend; it has the window. None: no query sees padding, except by a causal rule."""
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
        masks.append(mask)
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
            output = attend_with_dropout(query, key, value, mask, rule, dropout_keys, groups.place)
        else:
            output = scaled_dot_product_attention(
                query,
                key,
                value,
                mask,
                is_causal=rule.causal and mask is None,
                scale=rule.scaling,
                enable_gqa=shares_keys,
            )
        output = output.unflatten(1, (heads, -1)).transpose(2, 3).flatten(3)
        outputs.append(output.flatten(0, 2))
    return torch.cat(outputs)
