"""One split's rows, by position -> batches of tensors on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from app.batching.collate import Layout, collate
from app.data.dataset import Split
from app.data.tokens import TokenStore


@dataclass(frozen=True)
class Batch:
    """The model inputs of some rows, with their `labels` and their `positions` in the split, both (num_rows,) int64.

    The inputs of an empty batch (`num_rows` 0) have one dummy row, because a forward pass may be a collective.
    """

    inputs: dict[str, Any]
    labels: torch.Tensor
    positions: torch.Tensor
    num_rows: int


class Loader:
    """Makes batches from the rows of a split; a position counts the rows of the split from 0."""

    def __init__(self, split: Split, store: TokenStore, layout: Layout) -> None:
        self.split = split
        self.store = store
        self.layout = layout

    def __len__(self) -> int:
        return len(self.split)

    def lengths(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Return the number of tokens of each row, (num_rows,) int64: of all rows, or of those at `positions`."""
        rows = self.split.rows if positions is None else self.split.rows[positions]
        return np.asarray(self.store.offsets[rows + 1] - self.store.offsets[rows])

    def load(self, positions: np.ndarray, device: torch.device) -> Batch:
        """Return the batch of the rows at `positions`, (num_rows,), which may be empty."""
        input_positions = positions if len(positions) else np.zeros(1, np.int64)
        rows = self.split.rows[input_positions]
        tokens = [self.store.row(row) for row in rows]
        second_starts = None if self.store.second_starts is None else self.store.second_starts[rows]
        inputs = collate(tokens, second_starts, self.layout)
        self.store.release()
        labels = torch.from_numpy(np.asarray(self.split.labels[positions], dtype=np.int64))
        labels = to_device({"labels": labels}, device)["labels"]
        return Batch(to_device(inputs, device), labels, torch.from_numpy(positions), len(positions))


def to_device(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return inputs with their tensors on `device`; copies to CUDA are made from pinned memory, so that nothing waits."""
    is_cuda = device.type == "cuda"
    return {
        name: (value.pin_memory() if is_cuda else value).to(device, non_blocking=True)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }
