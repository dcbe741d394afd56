"""Dropout with fast random numbers for the CPU, of layers and of attention in groups of rows."""

from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from .attention_rule import Rule
from .grouped_attention import Shapes, split_groups

NUM_DRAWS = 2**16  # different draws; a probability of dropout is rounded to a multiple of 1 / NUM_DRAWS


def draw_keep_mask(values: Tensor, p: float) -> Tensor:
    """Return for each of `values`, on the CPU, 0 with the probability `p`, else 1.

    torch draws a Bernoulli number for each element from one thread's Mersenne twister, which takes 7 % of an
    fp32 step of BERT-base. Here four elements share a 64-bit draw of SFC64
    (https://numpy.org/doc/stable/reference/random/bit_generators/sfc64.html), which torch's generator seeds
    for every call, so that `torch.manual_seed` still decides the masks.
    """
    size = values.numel()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    num_words = -(-size // 4)
    words = np.random.SFC64(seed).random_raw(num_words)
    draws = torch.from_numpy(words.view(np.int16)[:size]).view(values.shape)
    # A draw is from -NUM_DRAWS / 2 on
    first_kept = round(p * NUM_DRAWS) - NUM_DRAWS // 2
    keep_mask = torch.empty(values.shape, dtype=values.dtype)
    return torch.ge(draws, first_kept, out=keep_mask)


def scale_where_kept(values: Tensor, keep_mask: Tensor, p: float) -> Tensor:
    """Return 0 where `keep_mask` is 0, else the value times 1 / (1 - p), in one pass over memory. The factor
    is a float32; bf16, the dtype of the mask and values, could not hold it exactly."""
    factor = NUM_DRAWS / (NUM_DRAWS - round(p * NUM_DRAWS))
    return torch.addcmul(values.new_zeros(()), values, keep_mask, value=factor)


class Drop(torch.autograd.Function):
    """CPU values, any shape, each 0 with the probability `p`, the others scaled up, so that the expected
    value of each stays the same."""

    @staticmethod
    def forward(ctx, values: Tensor, p: float) -> Tensor:
        keep_mask = draw_keep_mask(values, p)
        ctx.save_for_backward(keep_mask)
        ctx.p = p
        return scale_where_kept(values, keep_mask, p)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        [keep_mask] = ctx.saved_tensors
        return scale_where_kept(gradient, keep_mask, ctx.p), None


class Dropout(nn.Dropout):
    """nn.Dropout, which calls `Drop` on the CPU."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that nn.Dropout gives it
        if self.training and 0 < self.p < 1 and input.device.type == "cpu":
            return Drop.apply(input, self.p)
        return super().forward(input)


def replace_dropout(model: nn.Module) -> None:
    """Replace every nn.Dropout of a model by `Dropout`."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))


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
        query_shapes: Shapes,
        key_shapes: Shapes,
        masks: list[Tensor | None],
        rule: Rule,
    ) -> Tensor:
        ctx.query_shapes = query_shapes
        ctx.key_shapes = key_shapes
        ctx.num_places = len(keys)
        ctx.dropout = rule.dropout
        ctx.scaling = rule.scaling
        if ctx.scaling is None:
            ctx.scaling = queries.shape[1] ** -0.5
        attended = torch.empty_like(queries, dtype=torch.float32)
        groups = zip(
            split_groups(queries.float(), query_shapes),
            split_groups(keys.float(), key_shapes),
            split_groups(values.float(), key_shapes),
            split_groups(attended, query_shapes),
            masks,
            strict=True,
        )
        saved = []
        for query, key, value, output, mask in groups:
            bias = score_bias(query, mask)
            query = query.flatten(0, 1)
            key = key.flatten(0, 1)
            value = value.flatten(0, 1)
            scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=ctx.scaling)
            weights = scores.softmax(-1)
            keep_mask = draw_keep_mask(weights, rule.dropout)
            dropped = scale_where_kept(weights, keep_mask, rule.dropout)
            torch.bmm(dropped, value, out=output.flatten(0, 1))
            saved += [query, key, value, weights, keep_mask, dropped]
        ctx.save_for_backward(*saved)
        return attended.to(queries.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        attended_gradient = gradient.float()
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
        return *gradients, None, None, None, None


def score_bias(query: Tensor, mask: Tensor | None) -> Tensor:
    """Return what is added to the scores of a group, (num_rows * heads, 1 or longest, longest), or (1, 1, 1)
    without a mask: 0, and minus infinity where a query may not attend. `query`: (num_rows, heads, any,
    head_size)."""
    if mask is None:
        return query.new_zeros(1, 1, 1)
    bias = query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
    heads = query.shape[1]
    return bias.expand(-1, heads, -1, -1).flatten(0, 1)
