"""The results of all rows of a split, each row once, whatever the mode."""

from collections.abc import Callable

import numpy as np
import torch

from ..batching.loader import Batch, Loader
from ..batching.plan import evaluation_batches
from ..data.dataset import Split
from ..errors import TrainingError
from ..modes.mode import Mode
from ..runtime.devices import has_memory

# The size of a batch, in each process. Larger ones do not fit into the caches of a CPU; a GPU needs longer to
# launch the kernels of a smaller one than to compute it.
CPU_BATCH_ROWS = 64
BATCH_TOKENS = 16_384
NAMED_ROWS = 10  # the most rows that an error names


def evaluate_rows(
    mode: Mode,
    loader: Loader,
    batch_size: int | None = None,
    on_batch: Callable[[int], None] = lambda rows: None,
    row_results: Callable[[torch.Tensor, Batch], torch.Tensor] = lambda outputs, batch: outputs,
) -> np.ndarray:
    """Return the `row_results` of a split (its logits), (num_rows, any) float32 in the split's order, on
    every rank. Every rank must call it. A batch has at most `batch_size` rows; None: as many as suit the
    device. `on_batch` is called with the approximate number of rows done by all
    ranks together. Raises RuntimeError unless each row came back exactly once, and TrainingError, naming the
    rows, unless all results are finite."""
    group = mode.group
    max_tokens = mode.config.train.micro_batch_tokens
    if batch_size is None and has_memory(mode.device):
        max_tokens = tokens_of_batch(loader, group.world_size, max_tokens)
    elif batch_size is None:
        batch_size = CPU_BATCH_ROWS
    batches = evaluation_batches(
        loader.lengths(),
        batch_size,
        num_shards=group.world_size,
        shard_index=group.rank,
        windows=loader.windows(),
        max_tokens=max_tokens,
        padded=not loader.layout.packed,
    )
    mode.module.eval()
    own_positions = []
    own_results = []
    # Not in inference mode: parameters that ZeRO gathers there could not be trained again
    with torch.no_grad(), mode.precision.cached_autocast():
        for rows in batches:
            batch = loader.load(rows, mode.device)
            outputs = batch.row_outputs(mode.forward(batch.inputs))
            own_results.append(row_results(outputs, batch))
            own_positions.append(batch.positions)
            on_batch(len(batch.positions) * group.world_size)
    # This is not done in each step, because it takes a millisecond, for which a GPU would wait
    mode.module.train()
    positions = group.gather(torch.cat(own_positions).to(mode.device)).cpu().numpy()
    results = group.gather(torch.cat(own_results)).cpu().numpy()
    if not np.array_equal(np.sort(positions), np.arange(len(loader))):
        raise RuntimeError(
            f"every row of {loader.split.name} must be evaluated exactly once; of {len(loader):,} rows "
            f"{len(np.unique(positions)):,} came back, in {len(positions):,} results, so there is no report"
        )
    is_finite = np.isfinite(results).all(axis=1)
    if not is_finite.all():
        wrong_positions = positions[~is_finite]
        raise TrainingError(
            f"evaluation on {loader.split.name} needs finite logits, found {len(wrong_positions):,} of "
            f"{len(loader):,} rows without: {named_rows(loader.split, wrong_positions)}. This model was not "
            "saved as the best; look at these rows, lower train.learning_rate or set train.precision fp32, "
            "and resume from the last training state: --output.resume auto"
        )
    return results[np.argsort(positions)]


def tokens_of_batch(loader: Loader, num_shards: int, max_tokens: int | None) -> int:
    """Return the most tokens of a batch, at most `max_tokens` if given: so few that all shards have rows."""
    tokens_of_shard = -(-int(loader.lengths().sum()) // num_shards)
    limit = min(BATCH_TOKENS, tokens_of_shard)
    if max_tokens is not None:
        limit = min(limit, max_tokens)
    return limit


def named_rows(split: Split, positions: np.ndarray) -> str:
    """Return the first rows at `positions` of a split by id and line, how many more there are, their file."""
    rows = np.unique(split.rows[positions])
    names = [f"{row} ({split.table.short_location(row)})" for row in rows[:NAMED_ROWS].tolist()]
    text = ", ".join(names)
    if len(rows) > NAMED_ROWS:
        text += f" and {len(rows) - NAMED_ROWS} more"
    return f"{text} of {split.table.source}"
