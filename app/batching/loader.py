"""Rows of a split -> a batch on a device: the model's inputs, and the targets of the rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..runtime.devices import at_least_float32, is_cuda
from .collate import FilledSize, Layout, RowKeys, StepMasks, collate, keys_of_rows
from .joined_tensors import joined, places_of, views_of

EVALUATION = -1  # the `draw` of evaluations; those of steps count from 0


@dataclass(frozen=True)
class Batch:
    """The model inputs of some rows, their targets `labels` and `positions` in the split, (num_rows,) int64.
    The model's outputs begin with those of the labels, (num_labels, ...). `label_rows`, (num_labels,) on the
    host, is the index of each label's row in the batch. The inputs of an empty batch are a stand-in row,
    because a forward pass may be a collective. Where rows have windows, the inputs are windows, row after
    row, and `windows_per_row` (num_rows,) is how many each row has."""

    inputs: dict[str, Any]
    labels: torch.Tensor
    positions: torch.Tensor
    label_rows: torch.Tensor
    windows_per_row: torch.Tensor | None = None

    def row_outputs(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the labels, (num_labels, any), of the model's `outputs`, in float32 or
        float64. The outputs of a row with windows are the means over its windows. The model never sees which
        windows are of one row: a mode may split them over several devices."""
        outputs = at_least_float32(outputs)
        if self.windows_per_row is not None:
            outputs = means_of_rows(outputs, self.windows_per_row)
        return outputs[: len(self.labels)]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that a device needs, by name. The labels are the last: batches of one size may
        have different numbers of them."""
        tensors = {}
        for name, value in self.inputs.items():
            if isinstance(value, torch.Tensor):
                tensors[name] = value
        if self.windows_per_row is not None:
            tensors["windows_per_row"] = self.windows_per_row
        return tensors | {"labels": self.labels}

    def with_tensors(self, tensors: dict[str, torch.Tensor]) -> "Batch":
        """Return this batch with the tensors that `tensors` returned, on another device."""
        inputs = {name: tensors.get(name, value) for name, value in self.inputs.items()}
        return replace(
            self,
            inputs=inputs,
            labels=tensors["labels"],
            windows_per_row=tensors.get("windows_per_row"),
        )

    def on_device(self, device: torch.device) -> "Batch":
        return self.with_tensors(to_device(self.tensors(), device))


def as_int64(labels: np.ndarray) -> np.ndarray:
    return labels.astype(np.int64)


class Loader:
    """Makes batches from the rows of a split; a position counts the rows of the split from 0. `draw` is what
    random targets depend on, apart from the row: the step in training, `EVALUATION` in every evaluation.
    `losses_per_row`: how many losses are added up for each row. `targets` makes the targets of labels,
    (num_rows, ...); without it they are the labels as int64. Of a split with distributions of labels, these
    are the targets."""

    def __init__(
        self,
        split: Split,
        store: TokenStore,
        layout: Layout,
        losses_per_row: int = 1,
        targets: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.split = split
        self.store = store
        self.layout = layout
        self.losses_per_row = losses_per_row
        self.targets = targets or as_int64

    def __len__(self) -> int:
        return len(self.split)

    def lengths(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Return the tokens of each row, (num_rows,) int64: of all rows, or of those at `positions`."""
        rows = self.split.rows
        if positions is not None:
            rows = rows[positions]
        return np.asarray(self.store.offsets[rows + 1] - self.store.offsets[rows])

    def windows(self) -> np.ndarray | None:
        """Return the number of windows of each row, (num_rows,) int64; None where each has one."""
        if not self.store.has_windows:
            return None
        rows = self.split.rows
        return np.asarray(self.store.first_windows[rows + 1] - self.store.first_windows[rows])

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        """Return how many losses are added up for a global batch, the rows at `positions`."""
        return len(positions) * self.losses_per_row

    def input_rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids in the table of the rows at `positions`; of a stand-in row where there are none."""
        if not len(positions):
            positions = np.zeros(1, np.int64)
        return self.split.rows[positions]

    def labels_of(self, positions: np.ndarray) -> np.ndarray:
        """Return what the rows at `positions` are trained on, (num_rows, ...)."""
        if self.split.targets is not None:
            return np.asarray(self.split.targets[positions])
        return self.targets(np.asarray(self.split.labels[positions]))

    def load(
        self,
        positions: np.ndarray,
        device: torch.device,
        draw: int = EVALUATION,
        masks: StepMasks | None = None,
    ) -> Batch:
        """Return the batch of the rows at `positions`, (num_rows,), which may be empty. In training `masks`
        say of which step the masks of dropout are."""
        return self.host_batch(positions, draw, masks).on_device(device)

    def host_batch(
        self,
        positions: np.ndarray,
        draw: int = EVALUATION,
        masks: StepMasks | None = None,
        size: FilledSize | None = None,
    ) -> Batch:
        """Return the batch of `load`, on the host; rows of padding fill it up to `size`, if given."""
        rows = self.input_rows(positions)
        row_windows = [self.store.windows(row) for row in rows]
        if not len(positions):
            # A stand-in row needs only one window
            row_windows = [row_windows[0][:1]]
        second_starts = None
        if self.store.second_starts is not None:
            second_starts = self.store.second_starts[rows]
        windows = list(chain.from_iterable(row_windows))
        row_keys = keys_of_inputs(masks, rows, [len(windows) for windows in row_windows])
        inputs = collate(windows, second_starts, self.layout, row_keys, size)
        labels = self.labels_of(positions)
        windows_per_row = None
        if self.store.has_windows:
            windows_per_row = torch.tensor([len(windows) for windows in row_windows])
        self.store.release()
        return Batch(
            inputs=inputs,
            labels=torch.from_numpy(labels),
            positions=torch.from_numpy(positions),
            label_rows=torch.arange(len(positions)),
            windows_per_row=windows_per_row,
        )


def keys_of_inputs(masks: StepMasks | None, rows: np.ndarray, windows_per_row: list[int]) -> RowKeys | None:
    """Return the keys of the windows of rows; None without `masks`. `rows` are ids in the table."""
    if masks is None:
        return None
    windows = np.concatenate([np.arange(count) for count in windows_per_row])
    return keys_of_rows(masks, np.repeat(rows, windows_per_row), windows)


def means_of_rows(outputs: torch.Tensor, windows_per_row: torch.Tensor) -> torch.Tensor:
    """Return the mean of the windows of each row, (num_rows, any); `outputs` (num_windows, any), by row.
    `windows_per_row` (num_rows,) int64, at least 1 each. The mean of one window has the same bits."""
    num_rows = len(windows_per_row)
    rows = torch.arange(num_rows, device=outputs.device)
    row_of_window = rows.repeat_interleave(windows_per_row, output_size=len(outputs))
    summands = outputs / windows_per_row[row_of_window, None]
    means = outputs.new_zeros(num_rows, outputs.shape[1])
    return means.index_add(0, row_of_window, summands)


def tensor_to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on `device`, copied to CUDA from pinned memory without waiting."""
    if is_cuda(device):
        return tensor.pin_memory().to(device, non_blocking=True)
    # A copy to MPS must wait, or it reads freed memory: https://github.com/pytorch/pytorch/issues/189690
    return tensor.to(device)


def to_device(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return inputs with their tensors on `device`, copied to CUDA by one copy without waiting; values that
    are no tensors stay as they are."""
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    if is_cuda(device) and tensors:
        places = places_of(tensors)
        buffer = joined(tensors, places, pinned=True).to(device, non_blocking=True)
        return inputs | views_of(buffer, places)
    moved = {}
    for name, tensor in tensors.items():
        moved[name] = tensor_to_device(tensor, device)
    return inputs | moved
