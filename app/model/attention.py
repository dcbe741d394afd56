"""Attention over packed batches, registered with transformers so that its own encoders run without padding.

A model looks up its attention function by name and passes it the extra keyword arguments of the forward call
(https://huggingface.co/docs/transformers/attention_interface); here they are the inputs of
`app.batching.collate` that describe the rows. There are two ways: on CUDA one kernel takes rows of any
length, elsewhere rows are padded in groups of similar length.
"""

from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..batching.grouping import group_rows
from ..batching.loader import to_device
from ..runtime.devices import is_cuda
from .attention_rule import Rule
from .dropout import RowDropout, current_source
from .grouped_attention import DroppedAttention, Groups, MasksOfPass, Rearrange, attend_groups
from .varlen_attention import attend_varlen

NAME = "packed_rows"
# These inputs describe the rows of a packed batch: for one kernel, or in groups
VARLEN_INPUTS = ("row_offsets", "longest")
GROUP_INPUTS = ("group_shapes", "row_order", "to_padded", "from_padded", "is_padding")
# In it a layer keeps masks for those after it
MASKS_OF_PASS = "masks_of_pass"
ROW_INPUTS = (*VARLEN_INPUTS, *GROUP_INPUTS, MASKS_OF_PASS)


def packed_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **inputs
) -> tuple[Tensor, None]:
    """Let each token, of (1, heads, total_tokens, head_size), attend to the tokens of the same row; returns
    (1, total_tokens, heads, head_size). `key` and `value` may have fewer heads, each for several of `query`.
    Without `ROW_INPUTS` the batch is padded, and transformers' own function is called."""
    row_inputs = {name: inputs.pop(name) for name in ROW_INPUTS if name in inputs}
    window = inputs.get("sliding_window")
    if not row_inputs:
        # transformers makes no mask only where no window is shorter than the rows
        assert attention_mask is not None or not window or window >= query.shape[2]
        with RowDropout() if inputs.get("dropout") else nullcontext():
            return sdpa_attention_forward(module, query, key, value, attention_mask, **inputs)
    rule = Rule(
        dropout=inputs.get("dropout", 0.0),
        scaling=inputs.get("scaling"),
        causal=getattr(module, "is_causal", False),
        window=window,
    )
    # Under autocast rotary positions make float32 of queries and keys
    query = states_of_tokens(query.to(value.dtype))
    key = states_of_tokens(key.to(value.dtype))
    value = states_of_tokens(value)
    attended = attend_rows(query, key, value, row_inputs, rule)
    return attended[None], None


def states_of_tokens(states: Tensor) -> Tensor:
    """Return states (1, heads, tokens, head_size) as (tokens, heads, head_size)."""
    # Not states[0]: its gradient would be a tensor of zeros into which the given one is copied
    return states.squeeze(0).transpose(0, 1)


def attend_rows(query: Tensor, key: Tensor, value: Tensor, row_inputs: Mapping, rule: Rule) -> Tensor:
    """Let the queries of each packed row attend to the tokens of the row. `query`: (total_tokens, heads,
    head_size) or, of one token of each row, (num_rows, heads, head_size); returned in the same shape. `key`,
    `value`: (total_tokens, key heads, head_size), all of one dtype. `row_inputs` has `VARLEN_INPUTS` or
    `GROUP_INPUTS`, and may have `MASKS_OF_PASS`."""
    # The CUDA kernels would read other values without an error
    assert query.dtype == key.dtype == value.dtype
    if "row_offsets" not in row_inputs:
        return attend_in_groups(query, key, value, row_inputs, rule)
    offsets = row_inputs["row_offsets"]
    has_two_sided_window = rule.window is not None and not rule.causal
    has_kernel = query.dtype != torch.float32 or not has_two_sided_window
    if (is_cuda(query.device) or query.is_meta) and has_kernel:
        if rule.dropout:
            # The kernel draws its masks itself, from the generator of the device; later places stay the same
            current_source().next_place(query.shape[1])
        query_offsets = offsets
        longest_query = row_inputs["longest"]
        if has_one_query_a_row(query, key):
            query_offsets = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
            longest_query = 1
        return attend_varlen(
            query, key, value, query_offsets, offsets, longest_query, row_inputs["longest"], rule
        )
    lengths = offsets.diff().long().cpu().numpy()
    groups = to_device(group_rows(lengths, key.shape[1]), query.device)
    groups[MASKS_OF_PASS] = row_inputs.get(MASKS_OF_PASS)
    return attend_in_groups(query, key, value, groups, rule)


def has_one_query_a_row(query: Tensor, key: Tensor) -> bool:
    return len(query) < len(key)


def attend_in_groups(query: Tensor, key: Tensor, value: Tensor, groups: Mapping, rule: Rule) -> Tensor:
    """As `attend_rows`, in padded groups of rows: `groups` is what `group_rows` returns."""
    heads = key.shape[1]
    row_order = groups["row_order"]
    to_padded = groups["to_padded"]
    from_padded = groups["from_padded"]
    key_shapes = [(num_rows, heads, longest) for num_rows, longest, _ in groups["group_shapes"]]
    # The queries of one key head stay together, (tokens, key heads, any)
    queries = query.unflatten(1, (heads, -1)).flatten(2)
    if has_one_query_a_row(query, key):
        query_shapes = [(num_rows, heads, 1) for num_rows, _, _ in groups["group_shapes"]]
        queries = queries.index_select(0, row_order).flatten(0, 1)
    else:
        query_shapes = key_shapes
        queries = Rearrange.apply(queries.flatten(0, 1), to_padded, from_padded)
    keys = Rearrange.apply(key.flatten(0, 1), to_padded, from_padded)
    values = Rearrange.apply(value.flatten(0, 1), to_padded, from_padded)
    masks_of_pass = groups.get(MASKS_OF_PASS) or MasksOfPass()
    masks = masks_of_pass.masks(groups, key_shapes, rule)
    dropout_keys = None
    place = 0
    if rule.dropout:
        source = current_source()
        dropout_keys = source.keys_of_groups(groups, heads, has_one_query_a_row(query, key))
        # Each head is one
        place = source.next_place(query.shape[1])
    shaped_groups = Groups(query_shapes, key_shapes, masks, dropout_keys, place)
    shares_keys = query.shape[1] > heads
    if rule.dropout and query.device.type == "cpu" and not rule.causal and not shares_keys:
        with torch.autocast("cpu", enabled=False):
            attended = DroppedAttention.apply(queries, keys, values, shaped_groups, rule)
    else:
        attended = attend_groups(queries, keys, values, shaped_groups, rule)
    if has_one_query_a_row(query, key):
        attended = attended.unflatten(0, (-1, heads))
        attended = torch.empty_like(attended).index_copy(0, row_order, attended)
    else:
        attended = Rearrange.apply(attended, from_padded, to_padded, groups["is_padding"])
    num_queries, _, head_size = query.shape
    return attended.view(num_queries, -1, head_size)


def packed_mask(*args, attention_mask: Tensor | None = None, **kwargs) -> Tensor | None:
    """Return None for a packed batch, whose rows are described by `ROW_INPUTS`; for a padded one
    transformers' mask."""
    if attention_mask is None:
        return None
    return sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
