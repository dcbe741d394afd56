"""The only evaluation, whatever mode drives it: the results of every row of a split, each counted once."""

from collections.abc import Callable

import numpy as np
import torch

from ..batching.loader import Batch, Loader
from ..batching.plan import TokenLimit, evaluation_batches
from ..modes.mode import Mode

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
    group, tokens = mode.group, mode.config.train.micro_batch_tokens
    mode.module.eval()
    own_positions, own_results = [], []
    limit = TokenLimit(tokens, not loader.layout.packed) if tokens else None
    # Not in inference mode: parameters that ZeRO gathers there could not be trained again
    with torch.no_grad():
        shard = group.world_size, group.rank, loader.windows(), limit
        for rows in evaluation_batches(loader.lengths(), batch_size, *shard):
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
    ordered = np.empty_like(results)
    ordered[positions] = results
    return ordered
