"""The only evaluation, whatever mode drives it: the logits of every row of a split, each counted once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from app.batching.loader import Loader
from app.batching.plan import evaluation_batches
from app.evaluation.metrics import check_rows
from app.strategies.strategy import Strategy


def evaluate(
    strategy: Strategy, loader: Loader, batch_size: int, on_batch: Callable[[int], None] = lambda rows: None
) -> np.ndarray:
    """Return the logits of every row of a split, (num_rows, num_labels) float32 in the split's order, on every rank.

    Raises RuntimeError unless each row came back exactly once. Every rank must call it. `on_batch` is called with the
    approximate number of rows done by all ranks together.
    """
    group = strategy.group
    strategy.module.eval()
    own_positions, own_logits = [], []
    with strategy.evaluation_mode():
        for positions in evaluation_batches(loader.lengths(), batch_size, group.world_size, group.rank):
            batch = loader.load(positions, strategy.device)
            own_logits.append(strategy.forward(batch.inputs)[: batch.num_rows])
            own_positions.append(batch.positions)
            on_batch(batch.num_rows * group.world_size)
    positions = group.gather(torch.cat(own_positions).to(strategy.device)).cpu().numpy()
    logits = group.gather(torch.cat(own_logits)).cpu().numpy()
    check_rows(positions, len(loader), loader.split.name)
    ordered = np.empty_like(logits)
    ordered[positions] = logits
    return ordered
