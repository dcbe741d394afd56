"""Forward and backward of a global batch: this rank's micro-batches, repeated with smaller ones where memory
runs out.

Where a whole step is recorded, the optimizer's step too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from ..batching.loader import Batch, Loader
from ..batching.plan import BatchPlan
from ..config.schema import TrainConfig
from ..errors import first_line
from ..strategies.strategy import StepResult, Strategy
from .out_of_memory import MicroBatches
from .planned_shapes import PlannedShapes
from .progress import RunProgress
from .recorded_passes import RecordedPasses
from .recorded_steps import RecordedSteps, can_record_steps

# outputs, targets -> the sum of the losses
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class PassResults:
    """What the passes of a step leave: this rank's sum of losses, and for its targets, of the rows at
    `positions`, (targets,), whether all outputs are `finite`, (targets,) bool. The step's loss is the sum
    over all ranks divided by `divisor`. `step` is what the optimizer's step did, where it was recorded with
    them. Tensors stay on the device.
    """

    loss_sum: torch.Tensor
    positions: np.ndarray
    finite: torch.Tensor
    divisor: int
    step: StepResult | None = None


class ForwardBackward:
    """Adds up the gradients of a global batch over its micro-batches; every rank calls it with the same
    batches.

    Where memory runs out, the rows of a micro-batch are halved, for this step and all later ones, also in
    `state`.
    """

    def __init__(
        self,
        strategy: Strategy,
        loader: Loader,
        plan: BatchPlan,
        total_steps: int,
        loss: Loss,
        config: TrainConfig,
        state: RunProgress,
    ) -> None:
        self.strategy = strategy
        self.loader = loader
        self.seed = config.seed
        self.state = state
        self.micro_batches = MicroBatches(strategy, config, state.micro_batch_size)
        self.shapes = PlannedShapes(loader, plan, total_steps, self.micro_batches)
        self.run_pass = self.run_eagerly = partial(run_pass, strategy, loss)
        if loader.layout.filled:
            recorder = strategy.recorder_class(strategy.device)
            if can_record_steps(config, strategy) and self.micro_batches.count(config.batch_size) == 1:
                self.run_pass = RecordedSteps(self.run_eagerly, strategy, recorder, config.max_grad_norm)
            else:
                self.run_pass = RecordedPasses(self.run_eagerly, strategy, recorder)

    def warm_up(self) -> None:
        """Do what only the first passes do, and record those whose shapes are planned; no gradient stays.

        The generators of random numbers are afterwards as they were.
        """
        device = self.strategy.device
        self.strategy.module.train()
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            no_rows = self.loader.load(np.empty(0, np.int64), device)
            self.strategy.warm_up(no_rows.inputs)
            if isinstance(self.run_pass, RecordedPasses):
                self.record()

    def record(self) -> None:
        """Record and verify a pass of each planned shape; where memory runs out, no whole steps, then smaller
        micro-batches."""
        before = self.micro_batches.limit, self.state.micro_batch_size
        examples = self.shapes.choose()
        while (passes := self.run_pass).enabled and examples:
            step, index = examples[0]
            rows, batch_rows = self.shapes.cut(step)[index], len(self.shapes.plan.batch(step))
            try:
                passes.verify(self.loader.load(rows, self.strategy.device), batch_rows)
                examples = examples[1:]
            except (RuntimeError, MemoryError) as error:
                self.micro_batches.check(error, in_exchange=True)
                if self.record_passes_only():
                    examples = self.shapes.choose()
                elif len(rows) <= 1:
                    # Passes that are not recorded need less memory
                    passes.disable(first_line(error))
                    self.micro_batches.limit, self.state.micro_batch_size = before
                else:
                    self.state.micro_batch_size = self.micro_batches.halve(self.state.step + 1, batch_rows)
                    examples = self.shapes.choose()
        if not passes.enabled:
            self.shapes.set_buckets(())

    def record_passes_only(self) -> bool:
        """Record no whole steps from now on; return whether that changes something."""
        if not isinstance(self.run_pass, RecordedSteps):
            return False
        self.run_pass.close()
        self.run_pass = RecordedPasses(self.run_eagerly, self.strategy, self.run_pass.recorder)
        return True

    def __call__(self, batch: np.ndarray) -> PassResults:
        """Add the gradients of a global batch of row positions, (batch_rows,)."""
        lengths, divisor = self.loader.lengths(batch), self.loader.divisor(batch, self.state.step)
        while True:
            micro_batches = self.micro_batches.cut(batch, lengths)
            results = self.run_micro_batches(micro_batches, divisor)
            if results is not None:
                return results
            self.strategy.zero_grad()
            self.record_passes_only()
            self.state.micro_batch_size = self.micro_batches.halve(self.state.step + 1, len(batch))
            if self.loader.layout.buckets:
                # Passes of these are recorded when a shape comes for the second time
                self.shapes.choose()

    def run_micro_batches(self, micro_batches: list[np.ndarray], divisor: int) -> PassResults | None:
        """Add the gradients of this rank's micro-batches; return None where memory ran out on some rank."""
        strategy, device = self.strategy, self.strategy.device
        # Dropout is a function of the step and the rank, so that resuming needs no generator state.
        torch.manual_seed(step_seed(self.seed, self.state.step, strategy.group.rank))
        loss_sum, seen, finite, norms, enough_memory = torch.zeros((), device=device), [], [], [], True
        with strategy.cached_autocast():
            for index, positions in enumerate(micro_batches):
                is_last = index == len(micro_batches) - 1
                if is_last and not self.micro_batches.may_exchange_gradients(enough_memory):
                    return None
                try:
                    batch = self.loader.load(positions, device, self.state.step)
                    with strategy.micro_batch(is_last=is_last):
                        loss, outputs, *norm = self.run_pass(batch, divisor)
                except (RuntimeError, MemoryError) as error:
                    self.micro_batches.check(error, is_last)
                    enough_memory = False
                    continue
                loss_sum += loss
                seen.append(batch.label_positions.numpy())
                finite.append(outputs.isfinite().all(dim=1))
                norms += norm
        if not enough_memory:
            return None
        step = StepResult(norms[0].clone(), skipped=False) if norms else None
        return PassResults(loss_sum, np.concatenate(seen), torch.cat(finite), divisor, step)


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
