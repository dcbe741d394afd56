"""What happens when memory runs out in a step: more and smaller micro-batches, and the same global batch."""

from __future__ import annotations

import logging

import numpy as np
import torch

from ..batching.plan import micro_batches
from ..config.schema import TrainConfig
from ..errors import TrainingError, first_line
from ..runtime.host_memory import give_back_memory
from ..strategies.strategy import Strategy

logger = logging.getLogger(__name__)
# oneDNN gives no reason when it finds no memory for a kernel, and the thread gets no more kernels from it:
# its assembler keeps the first error of each thread (torch 2.13).
NO_KERNEL = "could not create a primitive"
# The others are those of torch's allocators
MESSAGES = ("can't allocate memory", "out of memory", NO_KERNEL)


class MicroBatches:
    """Cuts each rank's rows of a global batch into micro-batches of at most `limit` rows; None: no limit yet.

    Where the mode `can_retry`, a step whose memory ran out on some rank is repeated by all of them. Several
    processes need `train.micro_batch_size auto` for that: they then exchange gradients in a pass of no rows,
    after the micro-batches, once all ranks have reported that theirs succeeded. A rank that failed during the
    exchange could not tell the others.
    """

    def __init__(self, strategy: Strategy, config: TrainConfig, limit: int | None = None) -> None:
        self.strategy = strategy
        self.config = config
        self.limit = limit
        if isinstance(config.micro_batch_size, int):
            self.limit = min(limit or config.micro_batch_size, config.micro_batch_size)
        is_alone = strategy.group.world_size == 1
        self.asks_others = not is_alone and strategy.can_retry and config.micro_batch_size == "auto"
        self.can_retry = strategy.can_retry and (is_alone or self.asks_others)

    def rows_per_rank(self, batch_rows: int) -> int:
        """Return the most rows of a global batch that a rank gets."""
        return -(-batch_rows // self.strategy.group.world_size)

    def count(self, batch_rows: int) -> int:
        """Return the number of micro-batches into which each rank cuts its rows."""
        if self.limit is None:
            return self.config.accumulation_steps
        return -(-self.rows_per_rank(batch_rows) // self.limit)

    def cut(self, batch: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Return this rank's micro-batches of a global batch; the last has no rows where gradients are
        exchanged apart."""
        group = self.strategy.group
        own = micro_batches(batch, lengths, group.world_size, group.rank, self.count(len(batch)))
        return [*own, batch[:0]] if self.asks_others else own

    def may_exchange_gradients(self, enough_memory: bool) -> bool:
        """Return whether memory was enough on every rank, as far as they ask each other; every rank calls it."""
        if not self.asks_others:
            return True
        failures = self.strategy.group.start_sum(torch.tensor([int(not enough_memory)]))
        return not failures().item()

    def check(self, error: Exception, in_exchange: bool) -> None:
        """Raise `error` if memory has not run out, and TrainingError if it has but the step cannot be
        repeated."""
        if not is_out_of_memory(error):
            raise error
        if not self.can_retry or (in_exchange and self.asks_others):
            size = (
                "auto"
                if self.strategy.can_retry and not self.asks_others
                else "N, with a smaller number of rows"
            )
            raise TrainingError(
                f"memory ran out on rank {self.strategy.group.rank}, which cannot tell the others: "
                f"{first_line(error)}; resume "
                f"from the last training state with --output.resume auto --train.micro_batch_size {size}"
            ) from error
        if NO_KERNEL in str(error) and torch.backends.mkldnn.enabled:
            torch.backends.mkldnn.set_flags(False)
            logger.warning(
                "oneDNN found no memory for a kernel: torch's own kernels are used from now on; in bf16 they "
                "are slower"
            )

    def halve(self, step: int, batch_rows: int) -> int:
        """Halve the micro-batches from now on, on every rank alike, and return their most rows.

        Raises TrainingError where they have one row already.
        """
        largest = -(-self.rows_per_rank(batch_rows) // self.count(batch_rows))
        if largest <= 1:
            raise TrainingError(
                f"memory ran out in step {step} with micro-batches of one row; lower data.max_length (with "
                "data.long windows also "
                "data.max_windows), or use a smaller model"
            )
        self.limit = -(-largest // 2)
        give_back_memory(self.strategy.device)
        logger.info(
            "memory ran out in step %d with micro-batches of %d rows; the step is repeated, and from now on "
            "they have at "
            "most %d rows: %d micro-batches a step in each process; the global batch stays the same",
            *(step, largest, self.limit, self.count(batch_rows)),
        )
        return self.limit


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an allocation failed, on a device or on the host."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        text in str(error) for text in MESSAGES
    )
