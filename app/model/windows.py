"""Long texts in windows: the logits of a row from those of its windows, for every task that classifies rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..batching.loader import WINDOWS_PER_ROW
from ..runtime.precision import at_least_float32


def row_outputs(model: Callable[..., torch.Tensor], inputs: dict[str, Any]) -> torch.Tensor:
    """Return float32 outputs (float64 of a float64 model), one for each row or target, (num_rows, any).

    The model never sees which windows are of one row: a mode may split them over several devices.
    """
    windows_per_row = inputs.get(WINDOWS_PER_ROW)
    outputs = model(**{name: value for name, value in inputs.items() if name != WINDOWS_PER_ROW})
    outputs = at_least_float32(outputs)
    return outputs if windows_per_row is None else means_of_rows(outputs, windows_per_row)


def means_of_rows(outputs: torch.Tensor, windows_per_row: torch.Tensor) -> torch.Tensor:
    """Return the mean output of the windows of each row, (num_rows, any); `outputs` (num_windows, any), row
    after row.

    `windows_per_row` (num_rows,) int64, at least 1 each. The output of a row of one window has the bits of
    this window's.
    """
    num_rows = len(windows_per_row)
    rows = torch.arange(num_rows, device=outputs.device)
    row_of_window = rows.repeat_interleave(windows_per_row, output_size=len(outputs))
    shares = outputs / windows_per_row[row_of_window, None]
    return outputs.new_zeros(num_rows, outputs.shape[1]).index_add(0, row_of_window, shares)
