"""Forward and backward of a global batch: this rank's micro-batches, repeated with smaller ones where memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from app.batching.loader import Batch, Loader
from app.config.schema import TrainConfig
from app.errors import first_line
from app.strategies.strategy import Strategy
from app.training.out_of_memory import MicroBatches
from app.training.recorded_passes import RecordedPasses
from app.training.state import RunState

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # outputs, targets -> the sum of the losses


@dataclass(frozen=True)
class PassResults:
    """What the passes of a step leave: this rank's sum of losses, and for its targets, of the rows at `positions`,
    (targets,), whether all outputs are `finite`, (targets,) bool. The step's loss is the sum over all ranks divided by
    `divisor`. Tensors stay on the device."""

    loss_sum: torch.Tensor
    positions: np.ndarray
    finite: torch.Tensor
    divisor: int


class ForwardBackward:
    """Adds up the gradients of a global batch over its micro-batches; every rank calls it with the same batches.

    Where memory runs out, the rows of a micro-batch are halved, for this step and all later ones, also in `state`.
    """

    def __init__(self, strategy: Strategy, loader: Loader, loss: Loss, config: TrainConfig, state: RunState) -> None:
        self.strategy = strategy
        self.loader = loader
        self.seed = config.seed
        self.state = state
        self.micro_batches = MicroBatches(strategy, config, state.micro_batch_size)
        self.run_pass = partial(run_pass, strategy, loss)
        if loader.layout.filled:
            self.run_pass = RecordedPasses(self.run_pass, strategy, strategy.recorder_class(strategy.device))

    def warm_up(self, batch: np.ndarray) -> None:
        """Do what only the first pass does, and verify recorded passes on a global batch; no gradient stays."""
        self.strategy.module.train()
        no_rows = self.loader.load(np.empty(0, np.int64), self.strategy.device)
        self.strategy.warm_up(no_rows.inputs)
        if isinstance(self.run_pass, RecordedPasses):
            self.verify(self.run_pass, batch)

    def verify(self, passes: RecordedPasses, batch: np.ndarray) -> None:
        """Verify recorded passes on the first micro-batch of a global batch; where memory runs out, on smaller ones."""
        before = self.micro_batches.limit, self.state.micro_batch_size
        while passes.enabled:
            rows = self.micro_batches.cut(batch, self.loader.lengths(batch))[0]
            try:
                passes.verify(self.loader.load(rows, self.strategy.device), len(batch))
                return
            except (RuntimeError, MemoryError) as error:
                self.micro_batches.check(error, in_exchange=True)
                if len(rows) <= 1:  # passes that are not recorded need less memory
                    passes.disable(first_line(error))
                    self.micro_batches.limit, self.state.micro_batch_size = before
                else:
                    self.state.micro_batch_size = self.micro_batches.halve(self.state.step + 1, len(batch))

    def __call__(self, batch: np.ndarray) -> PassResults:
        """Add the gradients of a global batch of row positions, (batch_rows,)."""
        lengths, divisor = self.loader.lengths(batch), self.loader.divisor(batch, self.state.step)
        while True:
            micro_batches = self.micro_batches.cut(batch, lengths)
            results = self.run_micro_batches(micro_batches, divisor)
            if results is not None:
                return results
            self.strategy.zero_grad()
            self.state.micro_batch_size = self.micro_batches.halve(self.state.step + 1, len(batch))

    def run_micro_batches(self, micro_batches: list[np.ndarray], divisor: int) -> PassResults | None:
        """Add the gradients of this rank's micro-batches; return None where memory ran out on some rank."""
        strategy, device = self.strategy, self.strategy.device
        # Dropout is a function of the step and the rank, so that resuming needs no generator state.
        torch.manual_seed(step_seed(self.seed, self.state.step, strategy.group.rank))
        loss_sum, seen, finite, enough_memory = torch.zeros((), device=device), [], [], True
        with strategy.cached_autocast():
            for index, positions in enumerate(micro_batches):
                is_last = index == len(micro_batches) - 1
                if is_last and not self.micro_batches.may_exchange_gradients(enough_memory):
                    return None
                try:
                    batch = self.loader.load(positions, device, self.state.step)
                    with strategy.micro_batch(is_last=is_last):
                        loss, outputs = self.run_pass(batch, divisor)
                except (RuntimeError, MemoryError) as error:
                    self.micro_batches.check(error, is_last)
                    enough_memory = False
                    continue
                loss_sum += loss
                seen.append(batch.label_positions.numpy())
                finite.append(outputs.isfinite().all(dim=1))
        return PassResults(loss_sum, np.concatenate(seen), torch.cat(finite), divisor) if enough_memory else None


def run_pass(
    strategy: Strategy, loss: Loss, batch: Batch, divisor: int | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradients of a micro-batch; return the sum of its losses, and its outputs.

    `divisor` is by what the losses of the global batch are divided.
    """
    outputs = strategy.forward(batch.inputs)[: len(batch.labels)]
    loss_sum = loss(outputs, batch.labels)
    strategy.backward(loss_sum / divisor)
    return loss_sum.detach(), outputs.detach()


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return a seed that differs for every step and rank."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])
