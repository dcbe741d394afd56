"""Attention with dropout over packed batches on the CPU: forward and backward written out, few copies.

The same arithmetic in the same order as `attend_with_dropout` for each group, so the same bits. Tokens go to
the order of the products, and come back from it, by one selection each, where autograd would copy three
times.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.autograd.function import once_differentiable

from .dropout import drop, keep_mask


@dataclass(frozen=True)
class HeadLayout:
    """The order in which attention takes a packed batch: group, row, head, token of the padded row.

    `group_shapes`: for each group, its number of rows, the length they are padded to, and whether any has
    padding. `to_heads` (padded_tokens * heads,): which of the (total_tokens * heads) vectors is at each
    place; padding has any. `from_heads` (total_tokens * heads,): the place of each vector. `padding` (any,)
    int64: the places of padding. `biases`: for each group what is added to its scores, (rows * heads, 1,
    longest) float32, -inf for padding.
    """

    group_shapes: tuple[tuple[int, int, bool], ...]
    heads: int
    to_heads: torch.Tensor
    from_heads: torch.Tensor
    padding: torch.Tensor
    biases: tuple[torch.Tensor, ...]

    def groups(self, *states: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
        """Return each group's (rows * heads, longest, size) views of (padded_tokens * heads, size)."""
        counts = [num_rows * longest * self.heads for num_rows, longest, _ in self.group_shapes]
        parts = zip(*(tensor.split(counts) for tensor in states), strict=True)
        for (_, longest, _), group in zip(self.group_shapes, parts, strict=True):
            yield tuple(tensor.unflatten(0, (-1, longest)) for tensor in group)


def head_layout(
    heads: int,
    group_shapes: tuple[tuple[int, int, bool], ...],
    to_padded: torch.Tensor,
    from_padded: torch.Tensor,
    key_mask: torch.Tensor,
) -> HeadLayout:
    """Return a batch's layout for a number of heads; the others as `app.batching.collate` makes them."""
    places, biases, start = [], [], 0
    for num_rows, longest, has_padding in group_shapes:
        count = num_rows * longest
        by_head = torch.arange(start * heads, (start + count) * heads).view(num_rows, heads, longest)
        places.append(by_head.transpose(1, 2).reshape(count, heads))
        bias = torch.zeros(1, 1, 1)
        if has_padding:
            mask = key_mask[start : start + count].view(num_rows, 1, 1, longest)
            bias = torch.zeros(mask.shape).masked_fill_(~mask, float("-inf"))
            bias = bias.expand(-1, heads, -1, -1).reshape(num_rows * heads, 1, longest)
        biases.append(bias)
        start += count
    # (padded_tokens, heads)
    place = torch.cat(places)
    to_heads = torch.empty(place.numel(), dtype=torch.int64)
    to_heads[place] = to_padded[:, None] * heads + torch.arange(heads)
    from_heads, padding = place[from_padded].flatten(), place[~key_mask].flatten()
    return HeadLayout(group_shapes, heads, to_heads, from_heads, padding, tuple(biases))


class GroupedAttention(torch.autograd.Function):
    """Attention with dropout of packed tokens, (total_tokens, heads, head_size), laid out by a `HeadLayout`.
    Computed in fp32, whatever the tokens' dtype. `dropped` of 65,536 weights are dropped, not 0 or all."""

    @staticmethod
    def forward(
        ctx,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layout: HeadLayout,
        dropped: int,
        scaling: float,
    ) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            states = [
                vectors(tokens).index_select(0, layout.to_heads).float() for tokens in (query, key, value)
            ]
            attended, saved = torch.empty_like(states[2]), []
            groups = layout.groups(*states, attended)
            for bias, (queries, keys, values, output) in zip(layout.biases, groups, strict=True):
                scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=scaling)
                weights = scores.softmax(-1)
                kept = keep_mask(weights.shape, dropped, weights.dtype)
                kept_weights = drop(weights, kept, dropped)
                torch.bmm(kept_weights, values, out=output)
                saved += [weights, kept, kept_weights]
        ctx.save_for_backward(*states, *saved)
        ctx.layout, ctx.dropped, ctx.scaling = layout, dropped, scaling
        return attended.index_select(0, layout.from_heads).to(query.dtype).view(query.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        # Once: where layers are computed again, only the first access is allowed
        layout, tensors = ctx.layout, ctx.saved_tensors
        states, saved = tensors[:3], tensors[3:]
        with torch.autocast("cpu", enabled=False):
            arriving = vectors(gradient).index_select(0, layout.to_heads).float()
            arriving.index_fill_(0, layout.padding, 0)
            gradients = [torch.empty_like(tensor) for tensor in states]
            groups = layout.groups(*states, arriving, *gradients)
            for index, (queries, keys, values, output, to_queries, to_keys, to_values) in enumerate(groups):
                weights, kept, kept_weights = saved[3 * index : 3 * index + 3]
                torch.bmm(kept_weights.transpose(1, 2), output, out=to_values)
                to_weights = drop(torch.bmm(output, values.transpose(1, 2)), kept, ctx.dropped)
                to_scores = torch._softmax_backward_data(to_weights, weights, -1, weights.dtype)
                torch.bmm(to_scores, keys, out=to_queries)
                torch.bmm(to_scores.transpose(1, 2), queries, out=to_keys)
        by_token = [tensor.index_select(0, layout.from_heads) for tensor in gradients]
        # Scaled here, where there is no padding
        for tensor in by_token[:2]:
            tensor.mul_(ctx.scaling)
        return *(tensor.to(gradient.dtype).view(gradient.shape) for tensor in by_token), None, None, None


def vectors(tokens: torch.Tensor) -> torch.Tensor:
    """Return (total_tokens, heads, head_size) as (total_tokens * heads, head_size)."""
    return tokens.reshape(-1, tokens.shape[-1])
