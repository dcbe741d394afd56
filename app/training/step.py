"""One optimizer step, top to bottom: batch, forward, loss, backward, exchange, clip, update, zero.
`out_of_memory.py` repeats it with smaller micro-batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from ..batching.loader import Loader
from ..config.schema import TrainConfig
from ..modes.mode import Mode
from ..runtime.devices import has_memory
from .optimizer import set_learning_rate

# outputs, targets -> the sum of the losses
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# (positions of rows, whether it is the last) of each micro-batch of this rank
MicroBatchRows = Iterable[tuple[np.ndarray, bool]]


@dataclass(frozen=True)
class StepResult:
    """What one step did; tensors stay on the device, so that a step never waits for it.

    `step`: its number, from 1. `rows`: rows of the global batch. `loss_sum`: this rank's sum of losses; the
    step's loss is the sum over all ranks divided by `divisor`. `positions` (targets,): the row of each of
    this rank's targets; `finite` (targets,) bool: whether all outputs of the target are finite. `grad_norm`:
    L2 norm of all gradients before clipping, without dimensions. `skipped`: no weight has changed, because
    the gradients overflowed under fp16.
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
        mode: Mode,
        loader: Loader,
        loss: Loss,
        config: TrainConfig,
        before_update: Callable[[], None] = lambda: None,
    ) -> None:
        self.mode = mode
        self.loader = loader
        self.loss = loss
        self.forward = mode.forward
        self.r_drop = config.r_drop
        # How many times each row is in a micro-batch
        self.copies = 2 if config.r_drop else 1
        self.seed = config.seed
        self.max_grad_norm = config.max_grad_norm
        self.before_update = before_update

    def __call__(
        self, index: int, batch: np.ndarray, micro_batches: MicroBatchRows, learning_rate: float
    ) -> StepResult:
        """Train the rows at `batch`, the global batch of step `index`; `micro_batches`: this rank's part."""
        mode, device = self.mode, self.mode.device
        mode.module.train()
        set_learning_rate(mode.optimizer, learning_rate)
        # Dropout is a function of the step and the rank, so that resuming needs no generator state.
        torch.manual_seed(step_seed(self.seed, index, mode.group.rank))
        divisor = self.loader.divisor(batch, index)
        loss_sum, positions, finite = torch.zeros((), device=device), [], []
        with mode.cached_autocast():
            for rows, is_last in micro_batches:
                micro_batch = self.loader.load(np.tile(rows, self.copies), device, index)
                # The gradients of the last one are exchanged with the other ranks
                with mode.micro_batch(is_last):
                    outputs = micro_batch.row_outputs(self.forward(micro_batch.inputs))
                    micro_loss = self.sum_of_losses(outputs, micro_batch.labels)
                    mode.backward(micro_loss / divisor)
                loss_sum += micro_loss.detach()
                positions.append(micro_batch.label_positions.numpy())
                finite.append(outputs.detach().isfinite().all(dim=1))
        self.before_update()
        mode.unscale()
        norm, skipped = mode.update(mode.clip(self.max_grad_norm))
        mode.zero_grad()
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

    def sum_of_losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of a micro-batch, without dimensions.

        With R-Drop (Wu et al. 2021, https://arxiv.org/abs/2106.14448) the second half of the outputs is of
        the same rows as the first, under other dropout. The loss of a target is then the mean of its two
        losses plus `r_drop` times the divergence of its two predictions. It depends on this target alone, so
        it is the same however rows are spread over processes and micro-batches.
        """
        losses = self.loss(outputs, targets)
        if not self.r_drop:
            return losses
        return losses / 2 + self.r_drop * self.loss.divergence(*outputs.chunk(2))

    def warm_up(self) -> None:
        """Do what the mode does in its first pass only; random generators are afterwards as they were."""
        device = self.mode.device
        self.mode.module.train()
        with torch.random.fork_rng([device] if has_memory(device) else [], device_type=device.type):
            self.mode.warm_up(self.loader.load(np.empty(0, np.int64), device).inputs)


def step_seed(seed: int, index: int, rank: int) -> int:
    """Return a seed that differs for every step and rank."""
    return int(np.random.SeedSequence([seed, index, rank]).generate_state(1, np.uint64)[0])
