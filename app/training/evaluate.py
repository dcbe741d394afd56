"""The only evaluation, whatever mode drives it: the results of every row of a split, each counted once."""

from collections.abc import Callable

import numpy as np
import torch

from ..batching.loader import Batch, Loader
from ..batching.plan import TokenLimit, evaluation_batches
from ..data.dataset import Split
from ..errors import TrainingError
from ..modes.mode import Mode
from .non_finite import named_rows

BATCH_ROWS = 64  # rows of a batch, in each process
# Outputs of a batch -> what is kept of each row
RowResults = Callable[[torch.Tensor, Batch], torch.Tensor]


def evaluate(
    mode: Mode,
    loader: Loader,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda rows: None,
    row_results: RowResults = lambda outputs, batch: outputs,
) -> np.ndarray:
    """Return the `row_results` of a split (its logits), (num_rows, any) float32 in the split's order, on
    every rank.

    Raises RuntimeError unless each row came back exactly once. Every rank must call it. `on_batch` is called
    with the approximate number of rows done by all ranks together.
    """
    group = mode.group
    mode.module.eval()
    own_positions, own_results = [], []
    # Not in inference mode: parameters that ZeRO gathers there could not be trained again
    with torch.no_grad():
        tokens = mode.config.train.micro_batch_tokens
        limit = TokenLimit(tokens, not loader.layout.packed) if tokens else None
        shard = group.world_size, group.rank, loader.windows(), limit
        for positions in evaluation_batches(loader.lengths(), batch_size, *shard):
            batch = loader.load(positions, mode.device)
            outputs = batch.row_outputs(mode.forward(batch.inputs))
            own_results.append(row_results(outputs, batch))
            own_positions.append(batch.positions)
            on_batch(batch.num_rows * group.world_size)
    positions = group.gather(torch.cat(own_positions).to(mode.device)).cpu().numpy()
    results = group.gather(torch.cat(own_results)).cpu().numpy()
    check_rows(positions, len(loader), loader.split.name)
    ordered = np.empty_like(results)
    ordered[positions] = results
    return ordered


def check_rows(positions: np.ndarray, num_rows: int, split: str) -> None:
    """Raise RuntimeError unless `positions`, int64, has each row position from 0 to num_rows - 1 once."""
    counts = np.bincount(positions, minlength=num_rows) if len(positions) else np.zeros(num_rows, int)
    if len(counts) != num_rows or (counts != 1).any():
        missing, repeated = int((counts[:num_rows] == 0).sum()), int((counts > 1).sum())
        raise RuntimeError(
            f"every row of {split} must be evaluated exactly once; of {num_rows:,} rows {missing:,} are "
            f"missing and {repeated:,} repeated, so there is no report"
        )


def check_finite(results: np.ndarray, split: Split, step: int) -> None:
    """Raise TrainingError, naming the rows, unless all results, (num_rows, any), of a split are finite."""
    positions = np.flatnonzero(~np.isfinite(results).all(axis=1))
    if len(positions):
        raise TrainingError(
            f"step {step}: evaluation on {split.name} needs finite logits, found {len(positions):,} of "
            f"{len(results):,} rows without: {named_rows(split, positions)}. This model was not saved as the "
            "best; look at these rows, lower train.learning_rate or set train.precision fp32, and resume "
            "from the last training state: --output.resume auto"
        )
