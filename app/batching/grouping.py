"""Packed rows in groups of similar length, for attention on devices without a kernel for rows of any length.

The cost of attention grows with the square of the padded length. So each group is padded to its longest row,
and no row of it is shorter than half of that.
"""

from typing import Any

import numpy as np
import torch


def token_places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each packed token, (total_tokens,), and its position in the row, from 0."""
    row_of_token = np.repeat(np.arange(len(lengths)), lengths)
    first_tokens = np.cumsum(lengths) - lengths
    positions = np.arange(len(row_of_token)) - first_tokens[row_of_token]
    return row_of_token, positions


def group_rows(lengths: np.ndarray, heads: int) -> dict[str, Any]:
    """Return where the tokens of packed rows are in padded groups, the longest rows first. `lengths`
    (num_rows,) int64 are the tokens of each row.

    The padded groups are laid end to end. A group has one row after the other, and a row has its places once
    for each head, as products of matrices need them. The tensors count these places from 0; in a packed
    batch the heads of a token follow one another:
    `group_shapes`: a tuple of (num_rows, longest, has_padding) for each group.
    `to_padded` (places,): the packed token's head at each place; 0 for padding.
    `from_padded` (total_tokens * heads,): the place of each packed token's head.
    `is_padding` (places, 1) bool.
    `row_order` (num_rows,): the packed row of each row of the groups.
    """
    row_order = np.argsort(-lengths, kind="stable")
    sorted_lengths = lengths[row_order]
    # How often the longest row can be halved before it is as short as this one
    halvings = np.floor(np.log2(sorted_lengths[0] / sorted_lengths))
    group_starts = np.flatnonzero(np.diff(halvings)) + 1
    group_shapes = []
    num_places = 0
    # Each packed row has the place of its first token in the first head, and the number of places of one head
    first_places = np.empty(len(lengths), dtype=np.int64)
    places_per_head = np.empty(len(lengths), dtype=np.int64)
    for rows in np.split(row_order, group_starts):
        longest = int(lengths[rows].max())
        has_padding = bool((lengths[rows] < longest).any())
        group_shapes.append((len(rows), longest, has_padding))
        first_places[rows] = num_places + np.arange(len(rows)) * heads * longest
        places_per_head[rows] = longest
        num_places += len(rows) * heads * longest

    row_of_token, positions = token_places(lengths)
    places_of_first_head = first_places[row_of_token] + positions
    distances = np.outer(places_per_head[row_of_token], np.arange(heads))
    from_padded = (places_of_first_head[:, None] + distances).reshape(-1)
    to_padded = np.zeros(num_places, dtype=np.int64)
    to_padded[from_padded] = np.arange(len(from_padded))
    is_padding = np.ones((num_places, 1), dtype=bool)
    is_padding[from_padded] = False
    return {
        "group_shapes": tuple(group_shapes),
        "to_padded": torch.from_numpy(to_padded),
        "from_padded": torch.from_numpy(from_padded),
        "is_padding": torch.from_numpy(is_padding),
        "row_order": torch.from_numpy(row_order),
    }
