"""What happens when memory runs out in a step: smaller micro-batches, more of them, and the same global batch."""

from __future__ import annotations

import logging

import numpy as np
import torch

from app.batching.plan import micro_batches
from app.config.schema import TrainConfig
from app.errors import TrainingError
from app.runtime.host_memory import give_back_memory
from app.strategies.base import Strategy

logger = logging.getLogger(__name__)
# oneDNN gives no reason when it finds no memory for a kernel, and the thread gets no more kernels from it: its assembler
# keeps the first error of each thread (torch 2.13).
NO_KERNEL = "could not create a primitive"
SAID = ("can't allocate memory", "out of memory", NO_KERNEL)  # the others are what torch's allocators say


class MicroBatches:
    """How each process cuts its share of a global batch; `limit` is the rows of a micro-batch, once there is a limit.

    Where the mode `recovers`, a step whose memory ran out on some rank is done again by all of them. Several processes need
    `train.micro_batch_size auto` for that: they then exchange gradients in a pass of its own, behind the micro-batches, when
    all ranks have said that theirs went well. A rank that failed amid the exchange could not tell the others.
    """

    def __init__(self, strategy: Strategy, config: TrainConfig, limit: int | None = None) -> None:
        self.strategy = strategy
        self.config = config
        self.limit = limit
        if isinstance(config.micro_batch_size, int):
            self.limit = min(limit or config.micro_batch_size, config.micro_batch_size)
        self.asks_others = strategy.world_size > 1 and strategy.recovers and config.micro_batch_size == "auto"
        self.recovers = strategy.recovers and (strategy.world_size == 1 or self.asks_others)

    def steps(self, batch_rows: int) -> int:
        """Return the micro-batches of a global batch."""
        share = -(-batch_rows // self.strategy.num_shards)
        return self.config.accumulation_steps if self.limit is None else -(-share // self.limit)

    def cut(self, batch: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Return this rank's micro-batches of a global batch; the last is empty where gradients have a pass of their own."""
        strategy = self.strategy
        parts = micro_batches(batch, lengths, strategy.num_shards, strategy.shard_index, self.steps(len(batch)))
        return [*parts, batch[:0]] if self.asks_others else parts

    def all_passed(self, passed: bool) -> bool:
        """Return whether memory was enough on every rank; every rank calls it, before the gradients are exchanged."""
        return passed if not self.asks_others else not self.strategy.start_sum(torch.tensor([int(not passed)]))().item()

    def check(self, error: Exception, amid_exchange: bool) -> None:
        """Raise `error` if it is no lack of memory, and TrainingError for one that this run cannot get over."""
        if not is_out_of_memory(error):
            raise error
        if not self.recovers or (amid_exchange and self.asks_others):
            remedy = "auto" if self.strategy.recovers and not self.asks_others else "N, with a smaller number of rows"
            raise TrainingError(
                f"memory ran out on rank {self.strategy.rank}, where the others cannot be told: {first_line(error)}; go on "
                f"from the last training state with --output.resume auto --train.micro_batch_size {remedy}"
            ) from error
        if NO_KERNEL in str(error) and torch.backends.mkldnn.enabled:
            torch.backends.mkldnn.set_flags(False)
            logger.warning(
                "oneDNN found no memory for a kernel: torch's own kernels do its work from now on, in bf16 slower"
            )

    def halve(self, step: int, batch_rows: int) -> None:
        """Halve the micro-batches from now on, on every rank alike. Raises TrainingError where they have one row already."""
        share = -(-batch_rows // self.strategy.num_shards)
        largest = -(-share // self.steps(batch_rows))
        if largest <= 1:
            raise TrainingError(
                f"memory ran out in step {step} with micro-batches of one row; lower data.max_length, or take a smaller model"
            )
        self.limit = -(-largest // 2)
        give_back_memory(self.strategy.device)
        logger.info(
            "memory ran out in step %d with micro-batches of %d rows; the step is done again, and from now on they have at "
            "most %d rows: %d micro-batches a step in each process; the global batch stays the same",
            *(step, largest, self.limit, self.steps(batch_rows)),
        )


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an allocation failed, on a device or on the host."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(words in str(error) for words in SAID)


def first_line(error: Exception) -> str:
    """Return what an error says, without the rest of its lines."""
    return (str(error) or type(error).__name__).splitlines()[0]
