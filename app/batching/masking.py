"""Batches for masked language modelling: some tokens are hidden, and the model predicts them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from ..data.dataset import Split
from ..data.tokens import TokenStore
from .collate import FilledSize, Layout, StepMasks, collate
from .loader import EVALUATION, Batch, Loader, keys_of_inputs

TARGET_SHARE = 0.15  # of a row's tokens
MASK_SHARE = 0.8  # of the targets: the model sees the mask token in their place
RANDOM_SHARE = 0.1  # of the targets: it sees a random token; it sees the others as they are


class MaskedRow(NamedTuple):
    """A row whose targets are masked: `tokens` (length,), as the model sees them; `places` (targets,), the
    indices of the targets in order; and `labels` (targets,), their real tokens."""

    tokens: np.ndarray
    places: np.ndarray
    labels: np.ndarray


def masked_row(
    tokens: np.ndarray, row: int, draw: int, seed: int, mask_id: int, ordinary_ids: np.ndarray
) -> MaskedRow:
    """Return a row, (length,) ids, with some tokens hidden: `mask_id` takes the place of most of them, one of
    `ordinary_ids` that of some. These are the ids of all tokens but special ones, which are never hidden, in
    rising order.
    `row` is its id in the table, and `draw` the step or `EVALUATION`; with the seed these alone decide, so
    every mode hides the same tokens, and a resumed run too."""
    generator = np.random.default_rng([seed, draw - EVALUATION, row])
    candidates = np.flatnonzero(are_among(tokens, ordinary_ids))
    order = generator.permutation(len(candidates))
    num_targets = max(1, round(TARGET_SHARE * len(candidates)))
    places = candidates[np.sort(order[:num_targets])]
    action = generator.random(len(places))
    random_ids = generator.choice(ordinary_ids, len(places))
    is_masked = action < MASK_SHARE
    is_random = ~is_masked & (action < MASK_SHARE + RANDOM_SHARE)
    visible = tokens.copy()
    visible[places[is_masked]] = mask_id
    visible[places[is_random]] = random_ids[is_random]
    return MaskedRow(tokens=visible, places=places, labels=tokens[places])


def are_among(tokens: np.ndarray, sorted_ids: np.ndarray) -> np.ndarray:
    """Return for each token whether its id is one of `sorted_ids`. A binary search takes a few microseconds a
    row; `numpy.isin` goes through the whole vocabulary each time."""
    places = np.searchsorted(sorted_ids, tokens)
    return sorted_ids.take(places, mode="clip") == tokens


class MaskedLoader(Loader):
    """A loader whose targets are hidden tokens: `mask` is `masked_row` of tokens, row and draw. The input
    `masked` says where: in packed batches (targets,) int64 places of tokens; in padded ones (num_rows,
    longest) bool, which a mode may split by rows."""

    def __init__(self, split: Split, store: TokenStore, layout: Layout, mask: Callable) -> None:
        super().__init__(split, store, layout)
        self.mask = mask
        # `divisor` masks a whole global batch to count its targets; `load` then uses the same masks
        self.batch_rows: dict[tuple[int, int], MaskedRow] = {}

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        # Rows of the batch before are looked up while these are made
        batch_rows = {}
        for row in self.split.rows[positions].tolist():
            batch_rows[draw, row] = self.masked(row, draw)
        self.batch_rows = batch_rows
        num_targets = sum(len(masked.places) for masked in batch_rows.values())
        return max(1, num_targets)

    def masked(self, row: int, draw: int) -> MaskedRow:
        """Return the row with the id `row` in the table, masked."""
        if (draw, row) in self.batch_rows:
            return self.batch_rows[draw, row]
        tokens = np.asarray(self.store.row(row)).astype(np.int64)
        return self.mask(tokens, row, draw)

    def host_batch(
        self,
        positions: np.ndarray,
        draw: int = EVALUATION,
        masks: StepMasks | None = None,
        size: FilledSize | None = None,
    ) -> Batch:
        rows = self.input_rows(positions)
        masked_rows = [self.masked(row, draw) for row in rows.tolist()]
        row_keys = keys_of_inputs(masks, rows, [1] * len(rows))
        inputs = collate([masked.tokens for masked in masked_rows], None, self.layout, row_keys, size)
        self.store.release()
        if not len(positions):
            # A stand-in row has no targets
            masked_rows = []
        targets_per_row = [len(masked.places) for masked in masked_rows]
        label_rows = np.repeat(np.arange(len(masked_rows)), targets_per_row)
        label_rows = torch.from_numpy(label_rows)
        places = join([masked.places for masked in masked_rows])
        labels = join([masked.labels for masked in masked_rows])
        if self.layout.packed:
            inputs["masked"] = inputs["first_tokens"][label_rows] + places
        else:
            inputs["masked"] = torch.zeros(inputs["input_ids"].shape, dtype=torch.bool)
            inputs["masked"][label_rows, places] = True
        return Batch(
            inputs=inputs,
            labels=labels,
            positions=torch.from_numpy(positions),
            label_rows=label_rows,
        )


def join(arrays: list[np.ndarray]) -> torch.Tensor:
    """Return int64 arrays end to end, as one tensor; without any, an empty one."""
    if not arrays:
        return torch.empty(0, dtype=torch.int64)
    return torch.from_numpy(np.concatenate(arrays))
