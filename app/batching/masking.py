"""Masked language modelling: which tokens of a row are masked, as a pure function of (seed, draw, row).
Nothing else decides it, so every mode masks the same tokens, and a resumed run too."""

from typing import NamedTuple

import numpy as np
import torch

from ..data.dataset import Split
from ..data.tokens import TokenStore
from .loader import EVALUATION, Batch, Layout, Loader, collate, to_device

# Share of a row's tokens that are targets
FRACTION = 0.15
# Shares of the targets that become the mask token, or a random one; the others stay as they are
MASKED, RANDOM = 0.8, 0.1


class MaskedRow(NamedTuple):
    """A row whose targets are masked: `tokens` (length,), as the model sees them; `places` (targets,), the
    indices of the targets in order; and `labels` (targets,), their real tokens."""

    tokens: np.ndarray
    places: np.ndarray
    labels: np.ndarray


class Masking:
    """Hides a part of a row's tokens: `MASKED` of them behind `mask_id`, `RANDOM` behind one of
    `ordinary_ids`, the ids of all tokens but special ones, which are never hidden."""

    def __init__(self, seed: int, mask_id: int, ordinary_ids: np.ndarray) -> None:
        self.seed = seed
        self.mask_id = mask_id
        self.ordinary_ids = ordinary_ids

    def __call__(self, tokens: np.ndarray, row: int, draw: int) -> MaskedRow:
        """Return a row, (length,) ids, with some tokens hidden; `row` is its id in the table, and `draw` the
        step or `EVALUATION`."""
        candidates = np.flatnonzero(np.isin(tokens, self.ordinary_ids))
        if not len(candidates):
            return MaskedRow(tokens, candidates, tokens[candidates])
        generator = np.random.default_rng([self.seed, draw - EVALUATION, row])
        order = generator.permutation(len(candidates))
        places = candidates[np.sort(order[: max(1, round(FRACTION * len(candidates)))])]
        hidden, action = tokens.copy(), generator.random(len(places))
        others = generator.choice(self.ordinary_ids, len(places))
        masks = np.full_like(others, self.mask_id)
        ways = [action < MASKED, action < MASKED + RANDOM]
        hidden[places] = np.select(ways, [masks, others], tokens[places])
        return MaskedRow(hidden, places, tokens[places])


class MaskedLoader(Loader):
    """A loader whose targets are hidden tokens. The input `masked` says where: in packed batches (targets,)
    int64 places of tokens; in padded ones (num_rows, longest) bool, which a mode may split by rows."""

    def __init__(self, split: Split, store: TokenStore, layout: Layout, masking: Masking) -> None:
        super().__init__(split, store, layout)
        self.masking = masking
        # The masks of the last global batch are kept.
        self.kept: tuple[int, dict[int, MaskedRow]] = (EVALUATION, {})

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        self.kept = draw, {row: self.masked(row, draw) for row in self.split.rows[positions].tolist()}
        return max(1, sum(len(row.places) for row in self.kept[1].values()))

    def masked(self, row: int, draw: int) -> MaskedRow:
        if self.kept[0] == draw and row in self.kept[1]:
            return self.kept[1][row]
        return self.masking(np.asarray(self.store.row(row)).astype(np.int64), row, draw)

    def load(self, positions: np.ndarray, device: torch.device, draw: int = EVALUATION) -> Batch:
        rows = [self.masked(row, draw) for row in self.input_rows(positions).tolist()]
        inputs = collate([row.tokens for row in rows], None, self.layout)
        self.store.release()
        # A stand-in row has no targets
        rows = rows[: len(positions)]
        index = np.repeat(np.arange(len(rows)), [len(row.places) for row in rows])
        places, labels = (
            np.concatenate([np.empty(0, np.int64), *arrays])
            for arrays in ([row.places for row in rows], [row.labels for row in rows])
        )
        index, places, labels = map(torch.from_numpy, (index, places, labels))
        if "first_tokens" in inputs:
            inputs["masked"] = inputs["first_tokens"][index] + places
        else:
            inputs["masked"] = torch.zeros(inputs["input_ids"].shape, dtype=torch.bool)
            inputs["masked"][index, places] = True
        on_device = to_device(inputs | {"labels": labels}, device)
        labels = on_device.pop("labels")
        return Batch(on_device, labels, torch.from_numpy(positions), index)
