"""One optimizer step, top to bottom: batch, forward, loss, backward, exchange, clip, update, zero.
`out_of_memory.py` repeats it with smaller micro-batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from ..batching.loader import Batch, Loader
from ..config.schema import TrainConfig
from ..runtime.devices import has_memory
from ..strategies.strategy import Strategy
from .adversarial import FGM, OnePass
from .optimizer import set_learning_rate
from .r_drop import Loss, RDrop

# (positions of rows, whether it is the last) of each micro-batch of this rank
MicroBatchRows = Iterable[tuple[np.ndarray, bool]]


@dataclass(frozen=True)
class StepResult:
    """What one step did; tensors stay on the device, so that a step never waits for it.

    `step`: its number, from 1. `rows`: rows of the global batch. `loss_sum`: this rank's sum of losses; the
    step's loss is the sum over all ranks divided by `divisor`. `positions` (targets,): the row of each of
    this rank's targets; `finite` (targets,) bool: whether all outputs of the target are finite. `grad_norm`:
    L2 norm of all gradients before clipping, without dimensions. `skipped`: no weight has changed, because
    the gradients overflowed under fp16, or were not finite and `train.on_nonfinite` is skip.
    """

    step: int
    rows: int
    learning_rate: float
    loss_sum: torch.Tensor
    divisor: int
    positions: np.ndarray
    finite: torch.Tensor
    grad_norm: torch.Tensor | None
    skipped: bool


class TrainingStep:
    """Trains one global batch; every rank calls it with the same batches.

    The loss of a step is the sum over the targets of its global batch divided by their number, for any number
    of processes and micro-batches. Every rank calls `before_update` when the gradients are complete.
    """

    def __init__(
        self,
        strategy: Strategy,
        loader: Loader,
        loss: Loss,
        config: TrainConfig,
        before_update: Callable[[], None] = lambda: None,
    ) -> None:
        self.strategy = strategy
        self.loader = loader
        # R-Drop: each row twice
        self.copies = 2 if config.r_drop else 1
        self.loss = RDrop(loss, config.r_drop) if config.r_drop else loss
        self.passes = OnePass()
        if config.adversarial:
            embedding = strategy.unwrapped_module().model.get_input_embeddings()
            self.passes = FGM(embedding, config.adversarial_epsilon)
        self.seed = config.seed
        self.max_grad_norm = config.max_grad_norm
        self.before_update = before_update

    def __call__(
        self, index: int, batch: np.ndarray, micro_batches: MicroBatchRows, learning_rate: float
    ) -> StepResult:
        """Train the rows at `batch`, the global batch of step `index`; `micro_batches`: this rank's part."""
        strategy, device = self.strategy, self.strategy.device
        self.begin(index, learning_rate)
        divisor = self.loader.divisor(batch, index)
        loss_sum, positions, finite = torch.zeros((), device=device), [], []
        with strategy.cached_autocast():
            for rows, is_last in micro_batches:
                micro_batch = self.loader.load(np.tile(rows, self.copies), device, index)
                # The gradients of the last one are exchanged with the other ranks
                for is_exchanged, context in self.passes(micro_batch.inputs, is_last):
                    with strategy.micro_batch(is_exchanged), context:
                        micro_loss, micro_finite = self.forward_backward(micro_batch, divisor)
                    loss_sum += micro_loss
                    positions.append(micro_batch.label_positions.numpy())
                    finite.append(micro_finite)
        self.before_update()
        norm, skipped = self.update()
        return StepResult(
            step=index + 1,
            rows=len(batch),
            learning_rate=learning_rate,
            loss_sum=loss_sum,
            divisor=divisor,
            positions=np.concatenate(positions),
            finite=torch.cat(finite),
            grad_norm=norm,
            skipped=skipped,
        )

    def begin(self, index: int, learning_rate: float) -> None:
        """Set the learning rate and the random numbers of step `index`."""
        self.strategy.module.train()
        set_learning_rate(self.strategy.optimizer, learning_rate)
        # Dropout is a function of the step and the rank, so that resuming needs no generator state.
        torch.manual_seed(step_seed(self.seed, index, self.strategy.group.rank))

    def forward_backward(self, batch: Batch, divisor: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Add a micro-batch's gradients; return the sum of losses, and which targets have finite outputs."""
        outputs = batch.row_outputs(self.strategy.forward(batch.inputs))
        loss_sum = self.loss(outputs, batch.labels) / self.passes.number
        self.strategy.backward(loss_sum / divisor)
        return loss_sum.detach(), outputs.detach().isfinite().all(dim=1)

    def update(self) -> tuple[torch.Tensor | None, bool]:
        """Change the weights by the gradients; return the norm of these, and whether that was skipped."""
        strategy = self.strategy
        strategy.unscale()
        norm = strategy.clip(self.max_grad_norm)
        norm, skipped = strategy.update(norm)
        strategy.zero_grad()
        return norm, skipped

    def warm_up(self) -> None:
        """Do what the mode does in its first pass only; random generators are afterwards as they were."""
        device = self.strategy.device
        self.strategy.module.train()
        with torch.random.fork_rng([device] if has_memory(device) else [], device_type=device.type):
            self.strategy.warm_up(self.loader.load(np.empty(0, np.int64), device).inputs)


def step_seed(seed: int, index: int, rank: int) -> int:
    """Return a seed that differs for every step and rank."""
    return int(np.random.SeedSequence([seed, index, rank]).generate_state(1, np.uint64)[0])
