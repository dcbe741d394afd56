"""Horovod: each rank has the whole model; gradients are summed during the backward pass.

https://horovod.readthedocs.io/en/stable/pytorch.html
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..errors import InputError
from ..runtime.group import Group
from ..runtime.processes import end_with_launcher, launched_number
from .launch import Launcher
from .mode import BuildOptimizer, Mode, Tensors


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
        # The default name is that of the type; ranks whose values differ in type would wait for each other.
        return self.hvd.broadcast_object(value, root_rank=0, name="value")


class Horovod(Mode):
    """`DistributedOptimizer` sums the gradients, so the loop's loss needs no factor."""

    launcher = Launcher("horovodrun")
    group_class = HorovodGroup

    @classmethod
    def unavailable_reason(cls) -> str | None:
        try:
            import horovod.torch  # noqa: F401
        except ImportError as error:
            how = "install it: bash scripts/install_horovod.sh"
            return f"Horovod is not installed for this torch ({error}); {how}"
        return None

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        hvd = self.group.hvd
        self.module = model
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            build_optimizer(model),
            named_parameters=[item for item in model.named_parameters() if item[1].requires_grad],
            backward_passes_per_step=self.config.train.accumulation_steps,
            op=hvd.Sum,
        )

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        # The last global batch may have fewer micro-batches, so the count is not left to the optimizer: it
        # starts again at 2 before each micro-batch, which no backward pass uses up, and at 1 before the last,
        # which sends the gradients.
        self.optimizer.set_backward_passes_per_step(1 if is_last else 2)
        yield
        if is_last:
            # Before unscaling and clipping, which need the whole gradients
            self.optimizer.synchronize()

    def update(self, norm: torch.Tensor) -> tuple[torch.Tensor, bool]:
        with self.optimizer.skip_synchronize():
            return super().update(norm)

    def load_weights(self, weights: Tensors) -> None:
        super().load_weights(self.group.broadcast(weights))

    def load_optimizer_state(self, tensors: Tensors) -> None:
        zero_grad = self.optimizer.zero_grad
        # torch makes a step of no size to get a state, and calls this with an argument it does not know
        self.optimizer.zero_grad = lambda set_to_none: zero_grad()
        with self.optimizer.skip_synchronize():
            super().load_optimizer_state(self.group.broadcast(tensors))
        del self.optimizer.zero_grad
