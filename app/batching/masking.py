"""Masked language modelling: which tokens of a row are masked, as a pure function of (seed, draw, row).
Nothing else decides it, so every mode masks the same tokens, and a resumed run too."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from ..data.dataset import Split
from ..data.tokens import TokenStore
from .loader import EVALUATION, Batch, Layout, Loader, collate, to_device

FRACTION = 0.15  # of a row's tokens are targets
# Shares of the targets that become the mask token, or a random one; the others stay as they are
MASKED, RANDOM = 0.8, 0.1


class MaskedRow(NamedTuple):
    """A row whose targets are masked: `tokens` (length,), as the model sees them; `places` (targets,), the
    indices of the targets in order; and `labels` (targets,), their real tokens."""

    tokens: np.ndarray
    places: np.ndarray
    labels: np.ndarray


def masked_row(
    tokens: np.ndarray, row: int, draw: int, seed: int, mask_id: int, ordinary_ids: np.ndarray
) -> MaskedRow:
    """Return a row, (length,) ids, with some tokens hidden: most behind `mask_id`, some behind one of
    `ordinary_ids`, the ids of all tokens but special ones, which are never hidden. `row` is its id in the
    table, and `draw` the step or `EVALUATION`."""
    candidates = np.flatnonzero(np.isin(tokens, ordinary_ids))
    generator = np.random.default_rng([seed, draw - EVALUATION, row])
    order = generator.permutation(len(candidates))
    places = candidates[np.sort(order[: max(1, round(FRACTION * len(candidates)))])]
    hidden, action = tokens.copy(), generator.random(len(places))
    others = generator.choice(ordinary_ids, len(places))
    ways = [action < MASKED, action < MASKED + RANDOM]
    hidden[places] = np.select(ways, [np.full_like(others, mask_id), others], tokens[places])
    return MaskedRow(hidden, places, tokens[places])


class MaskedLoader(Loader):
    """A loader whose targets are hidden tokens: `mask` is `masked_row` of tokens, row and draw. The input
    `masked` says where: in packed batches (targets,) int64 places of tokens; in padded ones (num_rows,
    longest) bool, which a mode may split by rows."""

    def __init__(self, split: Split, store: TokenStore, layout: Layout, mask: Callable) -> None:
        super().__init__(split, store, layout)
        self.mask = mask
        # The masks of the last global batch are kept.
        self.kept: tuple[int, dict[int, MaskedRow]] = (EVALUATION, {})

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        self.kept = draw, {row: self.masked(row, draw) for row in self.split.rows[positions].tolist()}
        return max(1, sum(len(row.places) for row in self.kept[1].values()))

    def masked(self, row: int, draw: int) -> MaskedRow:
        if self.kept[0] == draw and row in self.kept[1]:
            return self.kept[1][row]
        return self.mask(np.asarray(self.store.row(row)).astype(np.int64), row, draw)

    def load(self, positions: np.ndarray, device: torch.device, draw: int = EVALUATION) -> Batch:
        rows = [self.masked(row, draw) for row in self.input_rows(positions).tolist()]
        inputs = collate([row.tokens for row in rows], None, self.layout)
        self.store.release()
        # A stand-in row has no targets
        rows = rows[: len(positions)]
        index = np.repeat(np.arange(len(rows)), [len(row.places) for row in rows])
        targets = np.concatenate([np.empty((2, 0), np.int64), *(row[1:] for row in rows)], axis=1)
        index, places, labels = map(torch.from_numpy, (index, *targets))
        if "first_tokens" in inputs:
            inputs["masked"] = inputs["first_tokens"][index] + places
        else:
            inputs["masked"] = torch.zeros(inputs["input_ids"].shape, dtype=torch.bool)
            inputs["masked"][index, places] = True
        labels = to_device({"labels": labels}, device)["labels"]
        return Batch(to_device(inputs, device), labels, torch.from_numpy(positions), index)
