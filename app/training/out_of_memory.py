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


class RetryOutOfMemory:
    """Makes steps, and where memory runs out the same step again with smaller micro-batches.

    The rows of a global batch are cut into micro-batches of at most `fits` rows; None: memory has never run
    out. Where it does, that is halved, for this step and all later ones; a run that resumes passes it in.
    Several processes cannot repeat a step: a rank that failed could not tell the others.
    """

    def __init__(self, step: TrainingStep, config: TrainConfig, fits: int | None) -> None:
        self.step = step
        self.mode = step.mode
        self.config = config
        self.fits = fits
        # From then on the step cannot be repeated: weights change
        self.is_committed = False

    def __call__(self, index: int, batch: np.ndarray, learning_rate: float) -> StepResult:
        """Make the step `index`, from 0, on the rows at `batch`, a global batch; every rank calls it."""
        while True:
            try:
                return self.step(index, batch, self.micro_batches(batch), learning_rate)
            except (RuntimeError, MemoryError) as error:
                self.check(error)
            # After `except`, which keeps the tensors of the failed step alive
            self.mode.zero_grad()
            # Recorded passes keep memory, and are for one micro-batch
            self.step.forward = self.mode.forward
            self.halve(index + 1, batch)

    def micro_batches(self, batch: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
        """Give this rank's micro-batches, as row positions, and whether each is the last."""
        self.is_committed = False
        own = self.of_ranks(batch)[self.mode.group.rank]
        yield from ((positions, False) for positions in own[:-1])
        yield own[-1], True
        self.is_committed = True

    def of_ranks(self, batch: np.ndarray) -> list[list[np.ndarray]]:
        """Return the micro-batches of a global batch of each rank, as row positions."""
        world_size, loader, limit = self.mode.group.world_size, self.step.loader, None
        count = self.config.accumulation_steps
        if self.fits is not None:
            count = -(-len(batch) // (world_size * self.fits))
        if self.config.micro_batch_tokens:
            tokens = self.config.micro_batch_tokens // self.step.copies
            limit = TokenLimit(tokens, not loader.layout.packed)
        return micro_batches(batch, loader.lengths(batch), world_size, count, limit)

    def check(self, error: Exception) -> None:
        """Raise `error` if memory has not run out, TrainingError if it has and no step can be repeated."""
        if not is_out_of_memory(error) or self.is_committed:
            raise error
        if self.mode.group.world_size > 1:
            raise TrainingError(
                f"memory ran out on rank {self.mode.group.rank}, which cannot tell the others: "
                f"{first_line(error)}; resume from the last training state with --output.resume auto "
                "--train.accumulation_steps N, with a larger number"
            ) from error
        replace_onednn(error)

    def halve(self, step: int, batch: np.ndarray) -> None:
        """Halve the micro-batches from now on; raises TrainingError if they have one row."""
        largest = max(len(rows) for of_rank in self.of_ranks(batch) for rows in of_rank)
        if largest <= 1:
            raise TrainingError(
                f"memory ran out in step {step} with micro-batches of one row; lower data.max_length (with "
                "data.long windows also data.max_windows), or use a smaller model"
            )
        self.fits = -(-largest // 2)
        give_back_memory(self.mode.device)
        logger.info(
            "memory ran out in step %d with micro-batches of %d rows; the step is repeated, and from now on "
            "they have at most %d rows: %d micro-batches a step in each process; the global batch stays the "
            "same",
            *(step, largest, self.fits, len(self.of_ranks(batch)[0])),
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
