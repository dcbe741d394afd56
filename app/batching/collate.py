"""Rows of a token store -> the tensors of one batch: padded to the longest, or packed with no padding at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

PAD_TO = 8  # padded batches are rounded up to a multiple of this many tokens
FILL_TO = 32  # filled batches to a multiple of at least this many
LONGEST_TO = 128  # what a filled batch calls its longest row is a multiple of this, so that it seldom differs


@dataclass(frozen=True)
class Layout:
    """What a model needs to know of its inputs' form.

    `packed`: no padding; `varlen`: attention of packed batches takes rows of any lengths, not groups of like length;
    `filled`: packed batches for it end with a row of padding tokens, so that their numbers of tokens are few; `pad_id`: the
    padding token; `first_position`: the position id of a row's first token (RoBERTa counts from pad_id + 1); `token_types`:
    whether the model tells the two texts of a pair apart; `max_positions`: the longest row it takes, or None where there is
    no limit.
    """

    packed: bool
    varlen: bool = False
    filled: bool = False
    pad_id: int = 0
    first_position: int = 0
    token_types: bool = True
    max_positions: int | None = None


def filled_tokens(tokens: int) -> int:
    """Return a number of tokens above `tokens`, one of few: at most eight from a power of 2 to the next."""
    step = max(FILL_TO, (1 << tokens.bit_length() - 1) // 8)
    return (tokens // step + 1) * step


def length_groups(lengths: np.ndarray) -> list[np.ndarray]:
    """Return the row numbers in groups, longest first, in which no row is shorter than half of the longest.

    The cost of attention grows with the square of the padded length, and one long row would stretch all the others.
    """
    order = np.argsort(-lengths, kind="stable")
    halvings = np.floor(np.log2(lengths[order[0]] / lengths[order]))
    return np.split(order, np.flatnonzero(np.diff(halvings)) + 1)


def collate(rows: Sequence[np.ndarray], second_starts: Sequence[int] | None, layout: Layout) -> dict[str, Any]:
    """Return the model's inputs for token arrays `rows`, each (length,); at least one row is needed.

    `second_starts` gives for each row the number of tokens before its second text, or is None for single texts. Padded:
    `input_ids`, `attention_mask` and, for pairs, `token_type_ids`, each (num_rows, longest) int64. Packed: `input_ids`,
    `position_ids` and, for pairs, `token_type_ids`, each (1, total_tokens) int64; `first_tokens` (num_rows,), the place of
    each row's first token; and what attention needs, by `_varlen_layout` or `_grouped_layout`. A filled batch has one row
    more than `rows`, whose logits mean nothing.
    """
    if not layout.token_types:
        second_starts = None
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    arrays = (
        _pack(rows, lengths, second_starts, layout) if layout.packed else _pad(rows, lengths, second_starts, layout)
    )
    return {
        name: torch.from_numpy(values) if isinstance(values, np.ndarray) else values for name, values in arrays.items()
    }


def _pad(
    rows: Sequence[np.ndarray], lengths: np.ndarray, second_starts: Sequence[int] | None, layout: Layout
) -> dict[str, np.ndarray]:
    longest = -(-int(lengths.max()) // PAD_TO) * PAD_TO
    if layout.max_positions:
        longest = max(int(lengths.max()), min(longest, layout.max_positions))
    places = np.arange(longest)
    mask = places < lengths[:, None]
    input_ids = np.full((len(rows), longest), layout.pad_id, dtype=np.int64)
    input_ids[mask] = np.concatenate(rows)
    arrays = {"input_ids": input_ids, "attention_mask": mask.astype(np.int64)}
    if second_starts is not None:
        arrays["token_type_ids"] = (mask & (places >= np.asarray(second_starts)[:, None])).astype(np.int64)
    return arrays


def _pack(
    rows: Sequence[np.ndarray], lengths: np.ndarray, second_starts: Sequence[int] | None, layout: Layout
) -> dict[str, Any]:
    total = int(lengths.sum())
    if layout.filled:
        filling = filled_tokens(total) - total
        rows = [*rows, np.full(filling, layout.pad_id)]
        lengths = np.append(lengths, filling)
        second_starts = None if second_starts is None else np.append(second_starts, filling)
    starts = np.cumsum(lengths) - lengths
    row_of_token = np.repeat(np.arange(len(rows)), lengths)
    position = np.arange(lengths.sum()) - starts[row_of_token]
    arrays = {
        "input_ids": np.concatenate(rows).astype(np.int64)[None],
        "position_ids": (position + layout.first_position)[None],
        "first_tokens": starts,
    }
    if layout.filled:  # the filling may be longer than any row that the model has positions for
        arrays["position_ids"][:, total:] = layout.first_position
    if second_starts is not None:
        second = position >= np.asarray(second_starts, dtype=np.int64)[row_of_token]
        arrays["token_type_ids"] = second.astype(np.int64)[None]
    if layout.varlen:
        return arrays | _varlen_layout(lengths, layout.filled)
    return arrays | _grouped_layout(lengths, row_of_token, position)


def _varlen_layout(lengths: np.ndarray, filled: bool) -> dict[str, Any]:
    """Return `row_offsets`, (num_rows + 1,) int32, the place of each row's first token and the end of the last row, and
    `longest`, the tokens of the longest row, or more: kernels take it for how much work there may be."""
    longest = int(lengths.max())
    if filled:
        longest = -(-longest // LONGEST_TO) * LONGEST_TO
    return {"row_offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), "longest": longest}


def _grouped_layout(lengths: np.ndarray, row_of_token: np.ndarray, position: np.ndarray) -> dict[str, Any]:
    """Return the layout for attention on groups of rows of similar length, each padded to its own longest row.

    `group_shapes`, a tuple of (num_rows, longest, has_padding) for each group; `to_padded` (padded_tokens,), the token at
    each place of the groups, laid end to end; `row_order` (num_rows,), the row at each place among the groups' rows;
    `key_mask` (padded_tokens,) bool, whether a place has a token; and `from_padded` (total_tokens,), the place of each token.
    `row_of_token`, `position`: (total_tokens,), each token's row and its place in it.
    """
    shapes, places, masks, done = [], np.empty(len(lengths), dtype=np.int64), [], 0
    groups = length_groups(lengths)
    for group in groups:
        longest = int(lengths[group].max())
        shapes.append((len(group), longest, bool((lengths[group] < longest).any())))
        places[group] = done + np.arange(len(group)) * longest  # of each row's first token
        masks.append((np.arange(longest) < lengths[group][:, None]).reshape(-1))
        done += len(group) * longest
    from_padded = places[row_of_token] + position
    to_padded = np.zeros(done, dtype=np.int64)
    to_padded[from_padded] = np.arange(len(position))
    return {
        "group_shapes": tuple(shapes),
        "row_order": np.concatenate(groups),
        "to_padded": to_padded,
        "from_padded": from_padded,
        "key_mask": np.concatenate(masks),
    }
