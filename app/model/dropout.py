"""Dropout by masks that belong to rows: of layers, of attention, and of functions inside transformers."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from ..runtime.devices import at_least_float32, without_autocast
from .attention_rule import Rule
from .random_masks import NUM_DRAWS, Keys, current_source, draws


def draw_keep_mask(values: Tensor, p: float, keys: Keys, place: int, num_places: int | None = None) -> Tensor:
    """Return for each of `values` 0 with the probability `p`, else 1. `keys` are those of its tokens, (...)
    for values (..., channels); with `num_places` see `draws`."""
    numbers = draws(keys, place, values.shape[-1], num_places)
    # A draw is from -NUM_DRAWS / 2 on
    first_kept = round(p * NUM_DRAWS) - NUM_DRAWS // 2
    # On the CPU a product of two dtypes is slow; elsewhere a mask in memory is best small
    dtype = values.dtype if values.device.type == "cpu" else torch.bool
    keep_mask = torch.empty(numbers.shape, dtype=dtype, device=values.device)
    return torch.ge(numbers, first_kept, out=keep_mask).view(values.shape)


def scale_where_kept(values: Tensor, keep_mask: Tensor, p: float) -> Tensor:
    """Return 0 where `keep_mask` is 0, else the value times 1 / (1 - p), in one pass over memory. The factor
    is a float32; bf16, the dtype of the mask and values, could not hold it exactly."""
    factor = NUM_DRAWS / (NUM_DRAWS - round(p * NUM_DRAWS))
    return torch.addcmul(values.new_zeros(()), values, keep_mask, value=factor)


class Drop(torch.autograd.Function):
    """Values, each 0 with the probability `p`, the others scaled up, so that the expected value of each stays
    the same."""

    @staticmethod
    def forward(
        ctx, values: Tensor, p: float, keys: Keys, place: int, num_places: int | None = None
    ) -> Tensor:
        keep_mask = draw_keep_mask(values, p, keys, place, num_places)
        ctx.save_for_backward(keep_mask)
        ctx.p = p
        return scale_where_kept(values, keep_mask, p)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        [keep_mask] = ctx.saved_tensors
        return scale_where_kept(gradient, keep_mask, ctx.p), None, None, None, None


def drop(values: Tensor, p: float) -> Tensor:
    """Return values, (..., channels), of the pass that is being computed, after dropout."""
    source = current_source()
    keys = source.keys_for(values.shape)
    return Drop.apply(values, p, keys, source.next_place())


class Dropout(nn.Dropout):
    """nn.Dropout with masks that belong to rows."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that nn.Dropout gives it
        if self.training and 0 < self.p < 1:
            return drop(input, self.p)
        return super().forward(input)


def replace_dropout(model: nn.Module) -> None:
    """Replace every nn.Dropout of a model by `Dropout`."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))


class RowDropout(TorchFunctionMode):
    """While it is entered, the functions of torch that drop values do so by masks that belong to rows: types
    of model that are not packed call them as they like."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is dropout:
            return self.dropout(*args, **kwargs)
        if function is scaled_dot_product_attention and kwargs.get("dropout_p", 0.0) > 0:
            return self.attention(*args, **kwargs)
        return function(*args, **kwargs)

    def dropout(self, values: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if training and 0 < p < 1:
            return drop(values, p)
        return dropout(values, p, training)

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options
    ) -> Tensor:
        source = current_source()
        # All tokens of padded rows are queries
        keys = source.padded_keys(query.shape[::2])
        place = source.next_place(query.shape[1])
        rule = Rule(options["dropout_p"], options.get("scale"), options.get("is_causal", False))
        return attend_with_dropout(query, key, value, attn_mask, rule, keys, place)


def attend_with_dropout(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, rule: Rule, keys: Keys, place: int
) -> Tensor:
    """As torch's scaled_dot_product_attention, (num_rows, heads, num_queries, head_size), in fp32 or float64
    inside; a causal rule is for no other mask. `keys` (num_rows, num_queries) are those of the queries; each
    head is a place, from `place` on."""
    heads = query.shape[1]
    queries_per_key = heads // key.shape[1]
    if queries_per_key > 1:
        key = key.repeat_interleave(queries_per_key, 1)
        value = value.repeat_interleave(queries_per_key, 1)
    scaling = rule.scaling
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    with without_autocast(query.device.type):
        scores = at_least_float32(query) @ at_least_float32(key).transpose(2, 3) * scaling
        if rule.causal and mask is None:
            mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril_()
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None:
            scores = scores + mask
        # 0 for a query that may attend to nothing
        weights = torch.ops.aten._safe_softmax(scores, -1)
        dropped = Drop.apply(weights, rule.dropout, keys, place, heads)
        return (dropped @ at_least_float32(value)).to(query.dtype)
