"""Dropout by masks that belong to rows: of layers, of attention, and of functions inside transformers.

Their random numbers are pure functions of a token's key, of the place in the network, and of the channel.

A pass of training has a `MaskSource` with the keys of its tokens (`app.batching.collate`). Each dropout of
the pass takes its number, which is its place in the network, and mixes it with keys and channels. There is
no generator with a state: a layer that is computed again takes the same numbers, and a CUDA graph that is
replayed takes those of the keys that it is given.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from ..batching.loader import tensor_to_device
from ..runtime.devices import at_least_float32, without_autocast
from .attention_rule import Rule

NUM_DRAWS = 2**16  # different draws; a probability of dropout is rounded to a multiple of 1 / NUM_DRAWS
DRAWS_PER_WORD = 2  # each word of 32 bits has two draws of 16
# Words count from 0 in each place of the network
WORDS_PER_PLACE = 2**16
NUM_PLACES = 2**16
# The factors and shifts of `lowbias32`, found by a search for the least bias:
# https://github.com/skeeto/hash-prospector. The second factor is negative as an int32.
FIRST_FACTOR = 0x7FEB352D
SECOND_FACTOR = 0x846CA68B
FIRST_SHIFT = 16
SECOND_SHIFT = 15


class Keys:
    """Keys of 64 bits, of any shape, as two halves, int32; the second is odd."""

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low = low
        self.high = high

    @classmethod
    def of(cls, keys: Tensor) -> "Keys":
        """Return the halves of int64 keys."""
        halves = keys.contiguous().unsqueeze(-1).view(torch.int32)
        return cls(halves[..., 0].contiguous(), halves[..., 1] | 1)

    def view(self, *shape: int) -> "Keys":
        return Keys(self.low.view(shape), self.high.view(shape))

    def at(self, index: Tensor) -> "Keys":
        """Return the keys at an index into all of them."""
        return Keys(self.low.flatten()[index], self.high.flatten()[index])


def draws(keys: Keys, place: int, num_channels: int, num_places: int | None = None) -> Tensor:
    """Return random numbers, int16, (*keys, num_channels), uniform over all int16 values. With `num_places`,
    they are (num_rows, num_places, num_tokens, num_channels) for keys (num_rows, num_tokens): those of so
    many places, as attention has one for each head."""
    num_words = -(-num_channels // DRAWS_PER_WORD)
    assert num_words <= WORDS_PER_PLACE
    counters = place_counters(place, num_places or 1, rounded_up(num_words), keys.low.device)[:, :num_words]
    low = keys.low.unsqueeze(-1)
    high = keys.high.unsqueeze(-1)
    if num_places is not None:
        counters = counters.unsqueeze(1)
        low = low.unsqueeze(1)
        high = high.unsqueeze(1)
    else:
        counters = counters[0]
    # Different counters of one token stay different here, because its second half is odd.
    words = torch.bitwise_xor(counters, low).mul_(high)
    # Shifts of an int32 repeat its sign. The bit that is lost so comes back by the next factor.
    shifted = words >> FIRST_SHIFT
    words.bitwise_xor_(shifted).mul_(FIRST_FACTOR)
    torch.bitwise_right_shift(words, SECOND_SHIFT, out=shifted)
    words.bitwise_xor_(shifted).mul_(as_int32(SECOND_FACTOR))
    return words.view(torch.int16)[..., :num_channels]


def as_int32(number: int) -> int:
    """Return the int32 that has the bits of a uint32."""
    return (number ^ 0x80000000) - 0x80000000


def rounded_up(number: int) -> int:
    """Return the next power of two, so that few sizes are kept."""
    return 1 << max(0, number - 1).bit_length()


@lru_cache(maxsize=4096)
def place_counters(place: int, num_places: int, num_words: int, device: torch.device) -> Tensor:
    """Return the number that each word has in places of the network, (num_places, num_words) int32: all
    numbers of a network are different, and look random."""
    assert place + num_places <= NUM_PLACES
    places = np.arange(place, place + num_places, dtype=np.uint32)[:, None]
    words = np.arange(num_words, dtype=np.uint32)
    # `lowbias32` as it was published maps no two numbers to one
    numbers = places * np.uint32(WORDS_PER_PLACE) + words
    numbers = (numbers ^ (numbers >> np.uint32(FIRST_SHIFT))) * np.uint32(FIRST_FACTOR)
    numbers = (numbers ^ (numbers >> np.uint32(SECOND_SHIFT))) * np.uint32(SECOND_FACTOR)
    numbers ^= numbers >> np.uint32(FIRST_SHIFT)
    return tensor_to_device(torch.from_numpy(numbers.view(np.int32)), device)


class MaskSource:
    """The keys of the tokens of one pass, and the number of its next place."""

    def __init__(
        self,
        keys: Tensor,
        read_tokens: Tensor | None = None,
        functions: Callable[[], AbstractContextManager] | None = None,
    ) -> None:
        """`keys` are the `dropout_keys` of `app.batching.collate`; of a packed batch the head reads
        `read_tokens`. `functions` makes the context that functions of torch need."""
        self.keys = keys
        self.read_tokens = read_tokens
        self.functions = functions or nullcontext
        self.place = 0
        if read_tokens is not None:
            self.token_keys = Keys.of(keys)
        self.known_keys: dict[torch.Size, Keys] = {}
        self.group_keys: dict[bool, list[Keys]] = {}

    def next_place(self, num_places: int = 1) -> int:
        """Return the number of a place, the first of several; later calls return others."""
        place = self.place
        self.place += num_places
        return place

    @contextmanager
    def opened(self, place: int) -> Iterator[None]:
        """Be the source of all dropout inside, from a place on."""
        token = CURRENT.set(self)
        place_outside = self.place
        self.place = place
        try:
            with self.functions():
                yield
        finally:
            self.place = place_outside
            CURRENT.reset(token)

    def keys_for(self, shape: torch.Size) -> Keys:
        """Return the keys of states, (..., channels), for each of their tokens."""
        leading = shape[:-1]
        if self.read_tokens is not None:
            return self.packed_keys(leading)
        return self.padded_keys(leading)

    def packed_keys(self, leading: torch.Size) -> Keys:
        num_tokens = leading.numel()
        if num_tokens == self.keys.shape[1]:
            return self.token_keys.view(*leading)
        assert num_tokens == len(self.read_tokens)
        return self.token_keys.at(self.read_tokens).view(*leading)

    def padded_keys(self, leading: torch.Size) -> Keys:
        """Return keys of places: (num_rows, ...), (num_rows * heads, ...), else those that all rows share, as
        embeddings of distances are."""
        if leading not in self.known_keys:
            num_rows = len(self.keys)
            sizes = leading[1:]
            if leading[0] == num_rows:
                keys = self.keys[:, 0]
                # Values of whole rows get the key of the first token, which a head reads
                sizes = sizes or (1,)
            elif leading[0] % num_rows == 0 and sizes:
                keys = self.keys[:, 0]
                sizes = (leading[0] // num_rows, *sizes)
            else:
                keys = self.keys[0, 1]
                sizes = leading
            for size in sizes:
                keys = mixed(keys.unsqueeze(-1), torch.arange(size, device=keys.device))
            self.known_keys[leading] = Keys.of(keys.reshape(leading))
        return self.known_keys[leading]

    def keys_of_groups(self, groups: Mapping, heads: int, reads_one: bool) -> list[Keys]:
        """Return the keys of the queries of each group of `app.batching.grouping`, (num_rows, longest), or
        (num_rows, 1) where of each row one token is a query."""
        if reads_one not in self.group_keys:
            if reads_one:
                tokens = self.read_tokens.index_select(0, groups["row_order"])
            else:
                tokens = groups["to_padded"] // heads
            group_keys = []
            start = 0
            for num_rows, longest, _ in groups["group_shapes"]:
                if reads_one:
                    group_tokens = tokens[start : start + num_rows].unsqueeze(1)
                    start += num_rows
                else:
                    num_places = num_rows * heads * longest
                    group_tokens = tokens[start : start + num_places].view(num_rows, heads, longest)[:, 0]
                    start += num_places
                group_keys.append(self.token_keys.at(group_tokens))
            self.group_keys[reads_one] = group_keys
        return self.group_keys[reads_one]


# Each thread has the source of the pass that it computes
CURRENT: ContextVar[MaskSource | None] = ContextVar("mask_source", default=None)


def current_source() -> MaskSource:
    """Return the source of the pass that is being computed."""
    source = CURRENT.get()
    if source is None:
        raise RuntimeError("dropout needs the input dropout_keys: call collate with row_keys")
    return source


def contexts_of_layer() -> tuple[AbstractContextManager, AbstractContextManager]:
    """Return the contexts in which a layer is computed, and computed again by the backward pass: again with
    the places that it has now. For `context_fn` of torch.utils.checkpoint."""
    source = CURRENT.get()
    if source is None:
        return nullcontext(), nullcontext()
    return nullcontext(), source.opened(source.place)


def mixed(keys: Tensor, numbers: Tensor) -> Tensor:
    """Return int64 keys mixed with numbers, as SplitMix64 does; see `app.batching.collate`."""
    keys = keys + (numbers + 1) * as_int64(0x9E3779B97F4A7C15)
    keys = (keys ^ shifted_right(keys, 30)) * as_int64(0xBF58476D1CE4E5B9)
    keys = (keys ^ shifted_right(keys, 27)) * as_int64(0x94D049BB133111EB)
    return keys ^ shifted_right(keys, 31)


def shifted_right(keys: Tensor, bits: int) -> Tensor:
    """Return int64 keys shifted, with zeros from the left."""
    return (keys >> bits) & ((1 << (64 - bits)) - 1)


def as_int64(number: int) -> int:
    """Return the int64 that has the bits of a uint64."""
    return (number ^ (1 << 63)) - (1 << 63)


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
