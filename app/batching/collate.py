"""Rows of a token store -> the tensors of one batch: padded to the longest row, or packed without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# The length of a padded batch is a multiple of this many tokens
PAD_TO = 8


@dataclass(frozen=True)
class Layout:
    """The form of the inputs that a model takes.

    `packed`: rows are laid end to end, without padding. `varlen`: attention of packed batches takes rows of
    any lengths, not groups of similar length. `pad_id`: the id of the padding token. `first_position`: the
    position id of a row's first token (RoBERTa counts from pad_id + 1). `last_except`: for a decoder
    the id that the token which it reads, the last of a row, does not have, or -1; None for an encoder.
    `token_types`: whether the model tells the two texts of a pair apart. `max_positions`: maximum tokens per
    row, or None for no limit.
    """

    packed: bool
    varlen: bool = False
    pad_id: int = 0
    first_position: int = 0
    last_except: int | None = None
    token_types: bool = True
    max_positions: int | None = None


def length_groups(lengths: np.ndarray) -> list[np.ndarray]:
    """Return indices of rows in groups, longest first; no row is shorter than half of its group's longest.
    The cost of attention grows with the square of the padded length, that of the longest in a group."""
    order = np.argsort(-lengths, kind="stable")
    halvings = np.floor(np.log2(lengths[order[0]] / lengths[order]))
    return np.split(order, np.flatnonzero(np.diff(halvings)) + 1)


def collate(
    rows: Sequence[np.ndarray], second_starts: Sequence[int] | None, layout: Layout
) -> dict[str, Any]:
    """Return the model's inputs for the token ids `rows`, one or more arrays of shape (length,).

    `second_starts` is for each row the number of tokens before its second text, or None for single texts.
    Padded: `input_ids`, `attention_mask` and, for pairs, `token_type_ids`, each (num_rows, longest) int64.
    Packed: `input_ids`, `position_ids` and, for pairs, `token_type_ids`, each (1, total_tokens) int64;
    `first_tokens` (num_rows,) int64, the index of each row's first token; for a decoder `last_tokens`, that
    of each row's last token which is not `last_except`; and what attention needs:
    `row_offsets` (num_rows + 1,) int32, the index of each row's first token and the end of the last row, and
    `longest`, the tokens of the longest row; or the arrays of `_grouped_layout`.
    """
    if not layout.token_types:
        second_starts = None
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    arrays = (
        _pack(rows, lengths, second_starts, layout)
        if layout.packed
        else _pad(rows, lengths, second_starts, layout)
    )
    return {
        name: torch.from_numpy(values) if isinstance(values, np.ndarray) else values
        for name, values in arrays.items()
    }


def _pad(
    rows: Sequence[np.ndarray], lengths: np.ndarray, second_starts: Sequence[int] | None, layout: Layout
) -> dict[str, np.ndarray]:
    longest = -(-int(lengths.max()) // PAD_TO) * PAD_TO
    if layout.max_positions:
        longest = max(int(lengths.max()), min(longest, layout.max_positions))
    columns = np.arange(longest)
    mask = columns < lengths[:, None]
    input_ids = np.full((len(rows), longest), layout.pad_id, dtype=np.int64)
    input_ids[mask] = np.concatenate(rows)
    arrays = {"input_ids": input_ids, "attention_mask": mask.astype(np.int64)}
    if second_starts is not None:
        arrays["token_type_ids"] = (mask & (columns >= np.asarray(second_starts)[:, None])).astype(np.int64)
    return arrays


def _pack(
    rows: Sequence[np.ndarray], lengths: np.ndarray, second_starts: Sequence[int] | None, layout: Layout
) -> dict[str, Any]:
    starts = np.cumsum(lengths) - lengths
    row_of_token = np.repeat(np.arange(len(rows)), lengths)
    position = np.arange(lengths.sum()) - starts[row_of_token]
    arrays = {
        "input_ids": np.concatenate(rows).astype(np.int64)[None],
        "position_ids": (position + layout.first_position)[None],
        "first_tokens": starts,
    }
    if layout.last_except is not None:
        real = np.where(arrays["input_ids"][0] != layout.last_except, np.arange(len(position)), 0)
        arrays["last_tokens"] = np.maximum(np.maximum.reduceat(real, starts), starts)
    if second_starts is not None:
        second = position >= np.asarray(second_starts, dtype=np.int64)[row_of_token]
        arrays["token_type_ids"] = second.astype(np.int64)[None]
    if layout.varlen:
        row_offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return arrays | {"row_offsets": row_offsets, "longest": int(lengths.max())}
    return arrays | _grouped_layout(lengths, row_of_token, position)


def _grouped_layout(lengths: np.ndarray, row_of_token: np.ndarray, position: np.ndarray) -> dict[str, Any]:
    """Return the layout for attention in groups of rows of similar length, each padded to its longest row.

    The padded groups are laid end to end; the arrays index their tokens and rows:
    `group_shapes`: a tuple of (num_rows, longest, has_padding) for each group.
    `to_padded` (padded_tokens,): the packed token at each padded index; 0 for padding.
    `from_padded` (total_tokens,): the padded index of each packed token.
    `key_mask` (padded_tokens,) bool: False for padding.
    `row_order` (num_rows,): the packed row of each row of the groups.
    `row_of_token` and `position`, (total_tokens,), are each token's row and its index in it.
    """
    shapes, row_starts, masks, padded_tokens = [], np.empty(len(lengths), dtype=np.int64), [], 0
    groups = length_groups(lengths)
    for group in groups:
        longest = int(lengths[group].max())
        shapes.append((len(group), longest, bool((lengths[group] < longest).any())))
        row_starts[group] = padded_tokens + np.arange(len(group)) * longest
        masks.append((np.arange(longest) < lengths[group][:, None]).reshape(-1))
        padded_tokens += len(group) * longest
    from_padded = row_starts[row_of_token] + position
    to_padded = np.zeros(padded_tokens, dtype=np.int64)
    to_padded[from_padded] = np.arange(len(position))
    return {
        "group_shapes": tuple(shapes),
        "row_order": np.concatenate(groups),
        "to_padded": to_padded,
        "from_padded": from_padded,
        "key_mask": np.concatenate(masks),
    }
