"""One split's rows, by position -> batches of tensors on a device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..runtime.devices import is_cuda
from ..runtime.precision import at_least_float32
from .collate import Layout, collate

# The `draw` of evaluations, which no step has
EVALUATION = -1


@dataclass(frozen=True)
class Batch:
    """The model inputs of some rows, their targets `labels` and `positions` in the split, (num_rows,) int64.

    The outputs of the model begin with one for each of the labels, (num_labels, ...). `label_rows`,
    (num_labels,) on the host, is the index of each label's row in the batch; None: each row has one label, in
    the order of the rows. The inputs of an empty batch (`num_rows` 0) have one dummy row, because a forward
    pass may be a collective. Where rows have windows, the inputs are of windows, row after row, and
    `windows_per_row` (num_rows,) is how many each row has.
    """

    inputs: dict[str, Any]
    labels: torch.Tensor
    positions: torch.Tensor
    num_rows: int
    label_rows: torch.Tensor | None = None
    windows_per_row: torch.Tensor | None = None

    @property
    def label_positions(self) -> torch.Tensor:
        """The position of each label's row in the split, (num_labels,) int64."""
        return self.positions if self.label_rows is None else self.positions[self.label_rows]

    def row_outputs(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the labels, (num_labels, any), of the model's `outputs`, in float32 or
        float64.

        The outputs of a row with windows are the means over its windows. The model never sees which windows
        are of one row: a mode may split them over several devices.
        """
        outputs = at_least_float32(outputs)
        if self.windows_per_row is not None:
            outputs = means_of_rows(outputs, self.windows_per_row)
        return outputs[: len(self.labels)]


class Loader:
    """Makes batches from the rows of a split; a position counts the rows of the split from 0.

    `draw` is what random targets depend on, apart from the row: the step in training, `EVALUATION` in every
    evaluation. `losses_per_row`: of how many losses that of a row is the sum. `targets` makes the
    targets of labels, (num_rows, ...); without it they are the labels as int64.
    """

    def __init__(
        self,
        split: Split,
        store: TokenStore,
        layout: Layout,
        losses_per_row: int = 1,
        targets: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.losses_per_row = losses_per_row
        self.targets = targets or (lambda labels: labels.astype(np.int64))
        self.split = split
        self.store = store
        self.layout = layout

    def __len__(self) -> int:
        return len(self.split)

    def lengths(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Return the tokens of each row, (num_rows,) int64: of all rows, or of those at `positions`."""
        rows = self.split.rows if positions is None else self.split.rows[positions]
        return np.asarray(self.store.offsets[rows + 1] - self.store.offsets[rows])

    def windows(self) -> np.ndarray | None:
        """Return the number of windows of each row, (num_rows,) int64; None where each has one."""
        if not self.store.has_windows:
            return None
        rows = self.split.rows
        return np.asarray(self.store.first_windows[rows + 1] - self.store.first_windows[rows])

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        """Return by what the sum of the losses of a global batch is divided: the number of its losses."""
        return len(positions) * self.losses_per_row

    def input_rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids in the table of the rows at `positions`; of a stand-in row where there are none."""
        return self.split.rows[positions if len(positions) else np.zeros(1, np.int64)]

    def load(self, positions: np.ndarray, device: torch.device, draw: int = EVALUATION) -> Batch:
        """Return the batch of the rows at `positions`, (num_rows,), which may be empty."""
        rows = self.input_rows(positions)
        windows = [self.store.windows(row) for row in rows]
        if not len(positions):
            windows = [windows[0][:1]]
        second_starts = None if self.store.second_starts is None else self.store.second_starts[rows]
        inputs = collate([window for of_row in windows for window in of_row], second_starts, self.layout)
        targets = {"labels": torch.from_numpy(self.targets(np.asarray(self.split.labels[positions])))}
        if self.store.has_windows:
            targets["windows_per_row"] = torch.tensor([len(of_row) for of_row in windows])
        self.store.release()
        return Batch(
            to_device(inputs, device),
            positions=torch.from_numpy(positions),
            num_rows=len(positions),
            **to_device(targets, device),
        )


def means_of_rows(outputs: torch.Tensor, windows_per_row: torch.Tensor) -> torch.Tensor:
    """Return the mean of the windows of each row, (num_rows, any); `outputs` (num_windows, any), by row.
    `windows_per_row` (num_rows,) int64, at least 1 each. The mean of one window has the same bits."""
    num_rows = len(windows_per_row)
    rows = torch.arange(num_rows, device=outputs.device)
    row_of_window = rows.repeat_interleave(windows_per_row, output_size=len(outputs))
    shares = outputs / windows_per_row[row_of_window, None]
    return outputs.new_zeros(num_rows, outputs.shape[1]).index_add(0, row_of_window, shares)


def to_device(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return inputs with their tensors on `device`, copied to CUDA from pinned memory without waiting."""
    # From other memory MPS reads it after it was freed: https://github.com/pytorch/pytorch/issues/189690
    is_pinned = is_cuda(device)
    return {
        name: (value.pin_memory() if is_pinned else value).to(device, non_blocking=is_pinned)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }
