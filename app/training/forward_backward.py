"""Forward and backward of a global batch: this rank's micro-batches, repeated with smaller ones where memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from app.batching.loader import Batch, Loader
from app.config.schema import TrainConfig
from app.strategies.strategy import Strategy
from app.training.out_of_memory import MicroBatches
from app.training.recorded_passes import RecordedPasses
from app.training.state import RunState

RowLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits, labels -> the sum of the rows' losses


@dataclass(frozen=True)
class PassResults:
    """What the passes of a step leave: this rank's sum of row losses, and for its rows at `positions`, (rows,), whether all
    logits are `finite`, (rows,) bool. Tensors stay on the device."""

    loss_sum: torch.Tensor
    positions: np.ndarray
    finite: torch.Tensor


class ForwardBackward:
    """Adds up the gradients of a global batch over its micro-batches; every rank calls it with the same batches.

    Where memory runs out, the rows of a micro-batch are halved, for this step and all later ones, also in `state`.
    """

    def __init__(
        self, strategy: Strategy, loader: Loader, row_loss: RowLoss, config: TrainConfig, state: RunState
    ) -> None:
        self.strategy = strategy
        self.loader = loader
        self.seed = config.seed
        self.state = state
        self.micro_batches = MicroBatches(strategy, config, state.micro_batch_size)
        self.run_pass = partial(run_pass, strategy, row_loss)
        if loader.layout.filled:
            self.run_pass = RecordedPasses(self.run_pass, strategy, strategy.recorder_class(strategy.device))

    def warm_up(self, batch: np.ndarray) -> None:
        """Do what only the first pass does, and verify recorded passes on a global batch; no gradient stays."""
        self.strategy.module.train()
        no_rows = self.loader.load(np.empty(0, np.int64), self.strategy.device)
        self.strategy.warm_up(no_rows.inputs)
        if isinstance(self.run_pass, RecordedPasses):
            rows = self.micro_batches.cut(batch, self.loader.lengths(batch))[0]
            self.run_pass.verify(self.loader.load(rows, self.strategy.device), len(batch))

    def __call__(self, batch: np.ndarray) -> PassResults:
        """Add the gradients of a global batch of row positions, (batch_rows,)."""
        lengths = self.loader.lengths(batch)
        while True:
            micro_batches = self.micro_batches.cut(batch, lengths)
            results = self.run_micro_batches(micro_batches, len(batch))
            if results is not None:
                return results
            self.strategy.zero_grad()
            self.state.micro_batch_size = self.micro_batches.halve(self.state.step + 1, len(batch))

    def run_micro_batches(self, micro_batches: list[np.ndarray], batch_rows: int) -> PassResults | None:
        """Add the gradients of this rank's micro-batches; return None where memory ran out on some rank."""
        strategy, device = self.strategy, self.strategy.device
        # Dropout is a function of the step and the rank, so that resuming needs no generator state.
        torch.manual_seed(step_seed(self.seed, self.state.step, strategy.group.rank))
        loss_sum, finite, enough_memory = torch.zeros((), device=device), [], True
        with strategy.cached_autocast():
            for index, positions in enumerate(micro_batches):
                is_last = index == len(micro_batches) - 1
                if is_last and not self.micro_batches.may_exchange_gradients(enough_memory):
                    return None
                try:
                    batch = self.loader.load(positions, device)
                    with strategy.micro_batch(is_last=is_last):
                        loss, logits = self.run_pass(batch, batch_rows)
                except (RuntimeError, MemoryError) as error:
                    self.micro_batches.check(error, is_last)
                    enough_memory = False
                    continue
                loss_sum += loss
                finite.append(logits.isfinite().all(dim=1))
        return PassResults(loss_sum, np.concatenate(micro_batches), torch.cat(finite)) if enough_memory else None


def run_pass(
    strategy: Strategy, row_loss: RowLoss, batch: Batch, batch_rows: int | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradients of a micro-batch of a global batch of `batch_rows`; return the sum of its row losses, and its logits."""
    logits = strategy.forward(batch.inputs)[: batch.num_rows]
    loss = row_loss(logits, batch.labels)
    strategy.backward(loss / batch_rows)
    return loss.detach(), logits.detach()


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return a seed that differs for every step and rank."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])
