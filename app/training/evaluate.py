"""The only evaluation, whatever mode drives it: the results of every row of a split, each counted once; and
the losses of steps, over all ranks. Numbers that are not finite end the run, and their rows are named."""

import math
from collections.abc import Callable

import numpy as np
import torch

from ..batching.loader import Batch, Loader, evaluation_batches
from ..checkpoints.training_state import RunProgress
from ..data.dataset import Split
from ..errors import TrainingError
from ..modes.mode import Mode
from .step import StepResult

BATCH_ROWS = 64  # rows of a batch, in each process
SHOWN_ROWS = 10


def evaluate(
    mode: Mode,
    loader: Loader,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda rows: None,
    row_results: Callable[[torch.Tensor, Batch], torch.Tensor] = lambda outputs, batch: outputs,
) -> np.ndarray:
    """Return the `row_results` of a split (its logits), (num_rows, any) float32 in the split's order, on
    every rank.

    Every rank must call it. `on_batch` is called with the approximate number of rows done by all ranks
    together. Raises RuntimeError unless each row came back exactly once, and TrainingError, naming the rows,
    unless all results are finite.
    """
    group, padded = mode.group, not loader.layout.packed
    mode.module.eval()
    own_positions, own_results = [], []
    limits = loader.windows(), mode.config.train.micro_batch_tokens, padded
    # Not in inference mode: parameters that ZeRO gathers there could not be trained again
    with torch.no_grad():
        for rows in evaluation_batches(loader.lengths(), batch_size, group.world_size, group.rank, *limits):
            batch = loader.load(rows, mode.device)
            outputs = batch.row_outputs(mode.forward(batch.inputs))
            own_results.append(row_results(outputs, batch))
            own_positions.append(batch.positions)
            on_batch(len(batch.positions) * group.world_size)
    positions = group.gather(torch.cat(own_positions).to(mode.device)).cpu().numpy()
    results = group.gather(torch.cat(own_results)).cpu().numpy()
    if not np.array_equal(np.sort(positions), np.arange(len(loader))):
        raise RuntimeError(
            f"every row of {loader.split.name} must be evaluated exactly once; of {len(loader):,} rows "
            f"{len(np.unique(positions)):,} came back, in {len(positions):,} results, so there is no report"
        )
    wrong = positions[~np.isfinite(results).all(axis=1)]
    if len(wrong):
        raise TrainingError(
            f"evaluation on {loader.split.name} needs finite logits, found {len(wrong):,} of {len(loader):,} "
            f"rows without: {named_rows(loader.split, wrong)}. This model was not saved as the best; look at "
            "these rows, lower train.learning_rate or set train.precision fp32, and resume from the last "
            "training state: --output.resume auto"
        )
    ordered = np.empty_like(results)
    ordered[positions] = results
    return ordered


def add_losses(mode: Mode, loader: Loader, steps: list[StepResult], progress: RunProgress) -> None:
    """Check the losses of `steps`, which have stayed on the device until now, add them to `progress`, and
    empty the list; every rank calls it. Raises TrainingError for a loss or gradient that is not finite."""
    if not steps:
        return
    unknown, group = torch.tensor(math.nan), mode.group
    sums = group.reduce_sum(torch.stack([step.loss_sum for step in steps])).tolist()
    norms = torch.stack([unknown if step.grad_norm is None else step.grad_norm for step in steps]).tolist()
    for step, loss, norm in zip(steps, sums, norms, strict=True):
        # Gradients that overflow under fp16 while the loss is finite are handled by the loss scaler.
        overflowed = mode.config.train.precision == "fp16" and step.skipped
        if math.isfinite(loss) and (math.isfinite(norm) or overflowed or step.grad_norm is None):
            progress.add(loss, step.divisor)
            continue
        own = torch.from_numpy(step.positions).to(mode.device)
        positions, found = group.gather(own[~step.finite]), "rows whose logits are not finite"
        if not len(positions):
            positions, found = group.gather(own), "all logits are finite; rows of the batch"
        raise TrainingError(
            f"step {step.step}: the loss is {loss / step.divisor:.4g} and the gradient norm {norm:.4g}; "
            f"{found}: {named_rows(loader.split, positions.cpu().numpy())}. No state was written since; look "
            "at these rows, or lower train.learning_rate, and resume with --output.resume auto"
        )
    steps.clear()


def named_rows(split: Split, positions: np.ndarray) -> str:
    """Return the first rows at `positions` of a split by id and line, how many more there are, their file."""
    rows = np.unique(split.rows[positions])
    shown = ", ".join(f"{row} ({split.table.place(row)})" for row in rows[:SHOWN_ROWS].tolist())
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"{shown}{more} of {split.table.source}"
