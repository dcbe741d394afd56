"""Rows of token ids -> the tensors that a model takes: padded, or packed end to end.

In training each token has a key, from which the masks of dropout are computed (`app.model.dropout`): a number
that depends on seed, step, row and position alone. So the masks are the same on one device or on eight,
whatever is in a micro-batch beside the row, and however the batch is padded or packed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .grouping import group_rows, token_places

PAD_TO = 8  # the length of a padded batch is a multiple of this many tokens
# SplitMix64: https://doi.org/10.1145/2660193.2660195, which passes BigCrush
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
# Earlier versions could train a row twice in a step. The number of its first copy stays in the keys, so that
# the masks, and with them the weights of a run, are the same as before.
FIRST_COPY = 0


@dataclass(frozen=True)
class Layout:
    """The form of the inputs that a model takes."""

    packed: bool  # rows are laid end to end, not padded to one length
    varlen: bool = False  # attention of packed batches takes rows of any lengths, not in groups
    heads: int = 1  # heads of keys; the groups have each padded row once for each
    multiple_of: int = 1  # rows of padding fill a packed batch up to a multiple of so many tokens
    pad_id: int = 0
    first_position: int = 0  # of a row's first token; RoBERTa counts from pad_id + 1
    # A decoder reads the last token of a row that does not have this id (-1: the last); None for an encoder
    last_except: int | None = None
    token_types: bool = True  # whether the model tells the two texts of a pair apart
    max_positions: int | None = None  # the most tokens of a row, where there is a limit


@dataclass(frozen=True)
class FilledSize:
    """The rows and tokens that rows of padding fill a packed batch up to. No row has more than `longest`
    tokens."""

    num_rows: int
    num_tokens: int
    longest: int


@dataclass(frozen=True)
class StepMasks:
    """What the masks of a step depend on, apart from rows."""

    seed: int
    step: int


@dataclass(frozen=True)
class RowKeys:
    """The key of each row, (num_rows,) uint64, and the one of the step, for what all rows share."""

    rows: np.ndarray
    step: int


def collate(
    rows: Sequence[np.ndarray],
    second_starts: Sequence[int] | None,
    layout: Layout,
    row_keys: RowKeys | None = None,
    size: FilledSize | None = None,
) -> dict:
    """Return the model's inputs for the token ids `rows`, one or more arrays of shape (length,).
    `second_starts` is for each row the number of tokens before its second text, or None for single texts.
    `row_keys` are for training, where rows have masks of dropout. Rows of padding fill a packed batch up to
    `size`, or to a multiple of `layout.multiple_of` tokens.

    Padded: `input_ids`, `attention_mask` and, for pairs, `token_type_ids`, each (num_rows, longest) int64.
    In training they also have `dropout_keys` (num_rows, 2) int64, the keys of the row and of the step.
    Packed: `input_ids`, `position_ids` and, for pairs, `token_type_ids`, each (1, total_tokens) int64, in
    training also `dropout_keys`, the key of each token;
    `first_tokens` and for a decoder `last_tokens` (num_rows,) int64, the index of the token of each row that
    the head reads; and for attention `row_offsets` (num_rows + 1,) int32, the index of each row's first token
    and the end of the last row, and `longest`, the tokens of the longest row; or what `group_rows` returns.
    Rows of padding that fill a packed batch up are the last ones.
    """
    if layout.packed:
        if size is None:
            padding = rows_of_padding(rows, layout)
        else:
            padding = rows_up_to(rows, size, layout)
        rows = [*rows, *padding]
    tokens = np.concatenate(rows)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    if not layout.token_types:
        second_starts = None
    if second_starts is not None:
        # A row of padding ends before a second text would start
        padding_lengths = lengths[len(second_starts) :]
        second_starts = np.concatenate([second_starts, padding_lengths]).astype(np.int64)
    if layout.packed:
        inputs = packed_inputs(tokens, lengths, second_starts, layout)
    else:
        inputs = padded_inputs(tokens, lengths, second_starts, layout)
    if size is not None and layout.varlen:
        # Recorded kernels are for rows of any length up to this one
        inputs["longest"] = size.longest
    if row_keys is not None:
        inputs["dropout_keys"] = dropout_keys(row_keys, lengths, layout)
    return inputs


def dropout_keys(row_keys: RowKeys, lengths: np.ndarray, layout: Layout) -> torch.Tensor:
    """Return the input `dropout_keys` of `collate`. `lengths` (num_rows,) are the tokens of all rows, and the
    keys those of the first ones: rows of padding have any key."""
    keys = np.pad(row_keys.rows, (0, len(lengths) - len(row_keys.rows)))
    if layout.packed:
        row_of_token, positions = token_places(lengths)
        return torch.from_numpy(keys_of_tokens(keys, row_of_token, positions)[None])
    step_keys = np.full(len(keys), row_keys.step, dtype=np.uint64)
    return torch.from_numpy(np.stack([keys, step_keys], axis=1).view(np.int64))


def rows_of_padding(rows: Sequence[np.ndarray], layout: Layout) -> list[np.ndarray]:
    """Return what is missing to a multiple of `layout.multiple_of` tokens, in rows that are no longer than
    the longest of `rows`: the model has no more positions."""
    lengths = [len(row) for row in rows]
    num_missing = -sum(lengths) % layout.multiple_of
    padding = np.full(num_missing, layout.pad_id, dtype=rows[0].dtype)
    longest = max(lengths)
    return [padding[start : start + longest] for start in range(0, num_missing, longest)]


def rows_up_to(rows: Sequence[np.ndarray], size: FilledSize, layout: Layout) -> list[np.ndarray]:
    """Return what `rows` lack to the rows and tokens of a size, in rows of padding of about the same length,
    which must be at least 1 and at most the longest of the size. No row may be longer than that either."""
    num_padding_rows = size.num_rows - len(rows)
    num_padding_tokens = size.num_tokens - sum(len(row) for row in rows)
    padding = np.full(num_padding_tokens, layout.pad_id, dtype=rows[0].dtype)
    ends = np.arange(1, num_padding_rows) * num_padding_tokens // num_padding_rows
    return np.split(padding, ends)


def padded_inputs(
    tokens: np.ndarray, lengths: np.ndarray, second_starts: np.ndarray | None, layout: Layout
) -> dict[str, torch.Tensor]:
    """Return the padded inputs of `collate`. `tokens` (total_tokens,) are those of all rows, `lengths` and
    `second_starts` (num_rows,) int64."""
    longest = int(lengths.max())
    width = -(-longest // PAD_TO) * PAD_TO
    if layout.max_positions:
        width = max(longest, min(width, layout.max_positions))
    columns = np.arange(width)
    is_token = columns < lengths[:, None]
    input_ids = np.full(is_token.shape, layout.pad_id)
    input_ids[is_token] = tokens
    inputs = {
        "input_ids": torch.from_numpy(input_ids),
        "attention_mask": torch.from_numpy(is_token.astype(np.int64)),
    }
    if second_starts is not None:
        is_second = is_token & (columns >= second_starts[:, None])
        inputs["token_type_ids"] = torch.from_numpy(is_second.astype(np.int64))
    return inputs


def packed_inputs(
    tokens: np.ndarray, lengths: np.ndarray, second_starts: np.ndarray | None, layout: Layout
) -> dict[str, Any]:
    """Return the packed inputs of `collate`, for the arguments of `padded_inputs`."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    first_tokens = offsets[:-1]
    row_of_token, positions = token_places(lengths)
    inputs = {
        "input_ids": torch.from_numpy(tokens.astype(np.int64)[None]),
        "first_tokens": torch.from_numpy(first_tokens),
        "position_ids": torch.from_numpy((positions + layout.first_position)[None]),
    }
    if layout.last_except is not None:
        readable = np.where(tokens != layout.last_except, np.arange(len(tokens)), 0)
        last_readable = np.maximum.reduceat(readable, first_tokens)
        # A row without such a token has its first one read
        inputs["last_tokens"] = torch.from_numpy(np.maximum(last_readable, first_tokens))
    if second_starts is not None:
        is_second = positions >= second_starts[row_of_token]
        inputs["token_type_ids"] = torch.from_numpy(is_second.astype(np.int64)[None])
    if layout.varlen:
        inputs["row_offsets"] = torch.from_numpy(offsets.astype(np.int32))
        inputs["longest"] = int(lengths.max())
    else:
        inputs |= group_rows(lengths, layout.heads)
    return inputs


def mixed(key: np.ndarray, number: np.ndarray | int) -> np.ndarray:
    """Return keys (any,) uint64 for keys and numbers from 0 on, of shapes that broadcast; equal keys with
    different numbers never give equal keys."""
    # An array, because NumPy warns of scalars that wrap around
    number = np.atleast_1d(number).astype(np.uint64)
    mixed_key = key + GOLDEN * (number + np.uint64(1))
    mixed_key = (mixed_key ^ (mixed_key >> np.uint64(30))) * FIRST_FACTOR
    mixed_key = (mixed_key ^ (mixed_key >> np.uint64(27))) * SECOND_FACTOR
    return mixed_key ^ (mixed_key >> np.uint64(31))


def keys_of_rows(masks: StepMasks, rows: np.ndarray, windows: np.ndarray | int = 0) -> RowKeys:
    """Return the keys of rows: `rows` (num_rows,) are ids in the table, and `windows` count those of a row
    from 0."""
    step_key = mixed(np.array([masks.seed], dtype=np.uint64), masks.step)
    keys = step_key
    for number in (rows, FIRST_COPY, windows):
        keys = mixed(keys, number)
    return RowKeys(keys, int(step_key[0]))


def keys_of_tokens(row_keys: np.ndarray, row_of_token: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the key of each token, (num_tokens,) int64, from the row that it is in, and its position there.

    So keys of 64 bits are as good as random: that two of n tokens of a run share one has the probability
    n^2 / 2^65, which is 3e-6 for 10 million tokens. The tokens of one row never do.
    """
    return mixed(row_keys[row_of_token], positions).view(np.int64)
