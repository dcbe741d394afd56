"""The processes of a run, and how they exchange values. A process alone is the simplest group."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from ..errors import InputError, TrainingError


class Group:
    """The processes of a run; `rank == 0` prints and writes. `rank` and `world_size` count
    all processes, `local_rank` and `local_world_size` those of this machine. Every rank
    must call each method. This class is a process alone, for which all of this is
    trivial."""

    rank = 0
    world_size = 1
    local_rank = 0
    local_world_size = 1
    # Whether it is the process group of torch.distributed. A program that uses this package may have one of
    # its own, which says nothing about this group.
    is_of_torch = False

    def join(self, device: torch.device, timeout: int) -> None:
        """Meet the other processes. A process that does not respond for `timeout` seconds ends the others."""

    def leave(self, has_failed: bool) -> None:
        """Part from the other processes; after a failure this process just ends, which tells the others."""

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows of every rank, concatenated on dim 0, on every rank; their counts may differ."""
        return rows

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of `values` over all ranks, on every rank."""
        return values

    def add_up(self, values: torch.Tensor) -> None:
        """Replace `values` by their sum over all ranks, on every rank."""

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value` (any picklable object) on every rank."""
        return value

    def wait_for_rank_0(self) -> None:
        """Wait until rank 0 calls this as well, for as long as that takes; a collective has a time limit."""

    def gather_values(self, value: Any) -> list[Any]:
        """Return every rank's `value`, which can be written as JSON, in the order of ranks, on every rank."""
        content = json.dumps(value).encode()
        content_bytes = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        lengths = self.gather(torch.tensor([len(content_bytes)])).tolist()
        all_bytes = self.gather(content_bytes)
        return [json.loads(bytes(part.tolist())) for part in all_bytes.split(lengths)]

    def on_rank_0(self, work: Callable[[], Any]) -> Any:
        """Call `work` on rank 0 only, and return its result (any picklable object) on every
        rank. Where it fails, every rank raises: InputError where rank 0 does, else
        TrainingError with the reason."""
        if self.world_size == 1:
            return work()
        result = None
        own_error = None
        # The error of rank 0 as the other ranks raise it
        failure: InputError | TrainingError | None = None
        if self.rank == 0:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - raised again below
                own_error = error
                error_class = InputError if isinstance(error, InputError) else TrainingError
                failure = error_class(f"rank 0 has ended: {error}")
        self.wait_for_rank_0()
        result, failure = self.broadcast((result, failure))
        if failure is None:
            return result
        # No rank ends before all of them know why; the first one to end may break the connection
        with suppress(RuntimeError):
            self.reduce_sum(torch.zeros(1))
        if own_error is not None:
            raise own_error
        raise failure
