"""The processes of a run, and what they exchange. The base class is a process alone, for which all of this is
trivial."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from ..errors import InputError, TrainingError


class Group:
    """The processes of a run; `rank == 0` prints and writes. `rank` and `world_size` count all processes,
    `local_rank` and `local_world_size` those of this machine. Every rank must call each method."""

    rank = 0
    world_size = 1
    local_rank = 0
    local_world_size = 1

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

    def gather_values(self, value: Any) -> list[Any]:
        """Return every rank's `value`, which can be written as JSON, in the order of ranks, on every rank."""
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = self.gather(torch.tensor([len(content)])).tolist()
        return [json.loads(bytes(part.tolist())) for part in self.gather(content).split(lengths)]

    def on_rank_0(self, work: Callable[[], Any]) -> Any:
        """Call `work` on rank 0 only, and return its result (any picklable object) on every rank. Where it
        fails, every rank raises: InputError where rank 0 does, else TrainingError with the reason."""
        if self.world_size == 1:
            return work()
        result, failure = None, None
        if self.rank == 0:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
        told = failure and (isinstance(failure, InputError), f"rank 0 has ended: {failure}")
        result, told = self.broadcast((result, told))
        if told:
            # No rank ends before all of them know why; the first one to end may break the connection
            with suppress(RuntimeError):
                self.reduce_sum(torch.zeros(1))
            if failure:
                raise failure
            is_input_error, message = told
            raise (InputError if is_input_error else TrainingError)(message)
        return result

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value` (any picklable object) on every rank."""
        return value
