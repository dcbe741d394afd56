"""What happens when memory runs out in a step: more and smaller micro-batches, and the same global batch."""

import logging
from collections.abc import Iterator

import numpy as np
import torch

from ..batching.plan import TokenLimit, micro_batches
from ..config.schema import TrainConfig
from ..errors import TrainingError, first_line
from ..runtime.host_memory import give_back_memory
from .step import StepResult, TrainingStep

logger = logging.getLogger(__name__)
# oneDNN gives no reason when it finds no memory for a kernel, and the thread gets no more kernels from it:
# its assembler keeps the first error of each thread (torch 2.13).
NO_KERNEL = "could not create a primitive"
# The others are those of torch's allocators
MESSAGES = ("can't allocate memory", "out of memory", NO_KERNEL)


class OtherRankOutOfMemory(RuntimeError):
    """Memory has run out on another rank, so that this one has to repeat the step too."""


class RetryOutOfMemory:
    """Makes steps, and where memory runs out the same step again with smaller micro-batches.

    Each rank's rows of a global batch are cut into micro-batches of at most `limit` rows; None: no limit yet.
    Where memory runs out `limit` is halved, for this step and all later ones. `fits` is the limit found so,
    None where memory has never run out; a run that resumes passes it in.

    One process just repeats the step. Several processes need a mode that `can_retry` and
    `train.micro_batch_size auto`: they then exchange gradients in a pass of no rows, after the micro-batches,
    once all ranks have reported that theirs succeeded. A rank that failed during the exchange could not tell
    the others.
    """

    def __init__(self, step: TrainingStep, config: TrainConfig, fits: int | None) -> None:
        self.step = step
        self.strategy = step.strategy
        self.config = config
        self.fits = fits
        limits = [fits, config.micro_batch_size]
        self.limit: int | None = min((limit for limit in limits if isinstance(limit, int)), default=None)
        is_alone = self.strategy.group.world_size == 1
        self.asks_others = not is_alone and self.strategy.can_retry and config.micro_batch_size == "auto"
        self.can_retry = self.strategy.can_retry and (is_alone or self.asks_others)
        # From when on the step cannot be repeated: gradients are exchanged, or weights change
        self.is_committed = False

    def __call__(self, index: int, batch: np.ndarray, learning_rate: float) -> StepResult:
        """Make the step `index`, from 0, on the rows at `batch`, a global batch; every rank calls it."""
        while True:
            try:
                return self.step(index, batch, self.micro_batches(batch), learning_rate)
            except OtherRankOutOfMemory:
                pass
            except (RuntimeError, MemoryError) as error:
                self.check(error)
                if self.asks_others:
                    self.failed_ranks(1)
            # After `except`, which keeps the tensors of the failed step alive
            self.strategy.zero_grad()
            self.halve(index + 1, batch)

    def micro_batches(self, batch: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
        """Give this rank's micro-batches, as row positions, and whether each is the last. Where ranks ask
        each other, the last has no rows; OtherRankOutOfMemory comes before it."""
        self.is_committed = False
        own = self.of_ranks(batch)[self.strategy.group.rank]
        if self.asks_others:
            yield from ((positions, False) for positions in own)
            if self.failed_ranks(0):
                raise OtherRankOutOfMemory
            self.is_committed = True
            yield batch[:0], True
        else:
            yield from ((positions, False) for positions in own[:-1])
            yield own[-1], True
        self.is_committed = True

    def of_ranks(self, batch: np.ndarray) -> list[list[np.ndarray]]:
        """Return the micro-batches of a global batch of each rank, as row positions."""
        world_size, loader, limit = self.strategy.group.world_size, self.step.loader, None
        count = self.config.accumulation_steps
        if self.limit is not None:
            count = -(-len(batch) // (world_size * self.limit))
        if self.config.micro_batch_tokens:
            tokens = self.config.micro_batch_tokens // self.step.copies
            limit = TokenLimit(tokens, not loader.layout.packed)
        return micro_batches(batch, loader.lengths(batch), world_size, count, limit)

    def failed_ranks(self, failed: int) -> int:
        """Return on how many ranks memory has run out; every rank calls it once in each try, with 0 or 1."""
        return int(self.strategy.group.start_sum(torch.tensor([failed]))().item())

    def check(self, error: Exception) -> None:
        """Raise `error` if memory has not run out, TrainingError if it has and no step can be repeated."""
        if not is_out_of_memory(error) or (self.is_committed and not self.asks_others):
            raise error
        if not self.can_retry or self.is_committed:
            size = (
                "auto"
                if self.strategy.can_retry and not self.asks_others
                else "N, with a smaller number of rows"
            )
            raise TrainingError(
                f"memory ran out on rank {self.strategy.group.rank}, which cannot tell the others: "
                f"{first_line(error)}; resume from the last training state with --output.resume auto "
                f"--train.micro_batch_size {size}"
            ) from error
        replace_onednn(error)

    def halve(self, step: int, batch: np.ndarray) -> None:
        """Halve the micro-batches from now on, on every rank; raises TrainingError if they have one row."""
        largest = max(len(rows) for of_rank in self.of_ranks(batch) for rows in of_rank)
        if largest <= 1:
            raise TrainingError(
                f"memory ran out in step {step} with micro-batches of one row; lower data.max_length (with "
                "data.long windows also data.max_windows), or use a smaller model"
            )
        self.limit = self.fits = -(-largest // 2)
        give_back_memory(self.strategy.device)
        logger.info(
            "memory ran out in step %d with micro-batches of %d rows; the step is repeated, and from now on "
            "they have at most %d rows: %d micro-batches a step in each process; the global batch stays the "
            "same",
            *(step, largest, self.limit, len(self.of_ranks(batch)[0])),
        )


def replace_onednn(error: Exception) -> None:
    """Compute without oneDNN from now on, where it is what found no memory: it would find none again."""
    if NO_KERNEL in str(error) and torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.set_flags(False)
        logger.warning(
            "oneDNN found no memory for a kernel: torch's own kernels are used from now on; in bf16 they are "
            "slower"
        )


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an allocation failed, on a device or on the host."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        text in str(error) for text in MESSAGES
    )
