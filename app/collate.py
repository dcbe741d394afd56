"""Rows of a token store -> the tensors of one batch: padded to the longest, or packed with no padding at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

PAD_TO = 8  # padded batches are rounded up to a multiple of this many tokens


@dataclass(frozen=True)
class Layout:
    """What a model needs to know of its inputs' form.

    `packed`: no padding; `pad_id`: the padding token; `first_position`: the position id of a row's first token (RoBERTa
    counts from pad_id + 1); `token_types`: whether the model tells the two texts of a pair apart; `max_positions`: the
    longest row it takes, or None where there is no limit.
    """

    packed: bool
    pad_id: int = 0
    first_position: int = 0
    token_types: bool = True
    max_positions: int | None = None


def collate(rows: Sequence[np.ndarray], second_starts: Sequence[int] | None, layout: Layout) -> dict[str, torch.Tensor]:
    """Return the model's inputs for token arrays `rows`, each (length,); at least one row is needed.

    `second_starts` gives for each row the number of tokens before its second text, or is None for single texts. Padded:
    `input_ids`, `attention_mask` and, for pairs, `token_type_ids`, each (num_rows, longest) int64. Packed: `input_ids`,
    `position_ids` and, for pairs, `token_type_ids`, each (1, total_tokens) int64; `first_tokens` (num_rows,), the place of
    each row's first token; and for attention `to_padded` (num_rows * longest,), `from_padded` (total_tokens,) and
    `key_mask` (num_rows, 1, 1, longest) bool, which lay the tokens out by row and back.
    """
    if not layout.token_types:
        second_starts = None
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    arrays = (
        _pack(rows, lengths, second_starts, layout) if layout.packed else _pad(rows, lengths, second_starts, layout)
    )
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


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
) -> dict[str, np.ndarray]:
    longest, total = int(lengths.max()), int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    row_of_token = np.repeat(np.arange(len(rows)), lengths)
    position = np.arange(total) - starts[row_of_token]
    mask = np.arange(longest) < lengths[:, None]
    to_padded = np.zeros((len(rows), longest), dtype=np.int64)
    to_padded[mask] = np.arange(total)
    arrays = {
        "input_ids": np.concatenate(rows).astype(np.int64)[None],
        "position_ids": (position + layout.first_position)[None],
        "first_tokens": starts,
        "to_padded": to_padded.reshape(-1),
        "from_padded": row_of_token * longest + position,
        "key_mask": mask[:, None, None, :],
    }
    if second_starts is not None:
        arrays["token_type_ids"] = (position >= np.asarray(second_starts, dtype=np.int64)[row_of_token]).astype(
            np.int64
        )[None]
    return arrays
