"""The ranks that horovodrun started, and their collectives.

https://horovod.readthedocs.io/en/stable/api.html#module-horovod.torch
"""

from typing import Any

import torch

from ..errors import InputError
from ..runtime.group import Group
from ..runtime.processes import end_with_launcher, launched_number


class HorovodGroup(Group):
    """The ranks that horovodrun started."""

    def __init__(self) -> None:
        import horovod.torch as hvd

        self.hvd = hvd
        hvd.init()
        self.rank, self.world_size = hvd.rank(), hvd.size()
        self.local_rank, self.local_world_size = hvd.local_rank(), hvd.local_size()
        requested = launched_number("WORLD_SIZE", launched_number("HOROVOD_SIZE", 1))
        if requested != self.world_size:
            raise InputError(
                f"{requested} processes were asked for, but Horovod has {self.world_size}, each training "
                f"alone; start it with: horovodrun -np {requested} -H localhost:{requested} --gloo python "
                "run_horovod.py"
            )
        end_with_launcher()

    def leave(self, has_failed: bool) -> None:
        if not has_failed:
            self.hvd.shutdown()

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return self.hvd.allgather(rows)

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        return self.hvd.allreduce(values, op=self.hvd.Sum)

    def broadcast(self, value: Any) -> Any:
        # The default name is that of the type, and ranks whose values differ in type would wait for each
        # other.
        return self.hvd.broadcast_object(value, root_rank=0, name="value")
