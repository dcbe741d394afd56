"""Horovod: its ranks and its optimizer. It is imported when the mode is entered.

https://horovod.readthedocs.io/en/stable/pytorch.html
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..program import file_here
from ..runtime.processes import end_with_launcher
from .group import Group
from .mode import Mode, Tensors, Wrapped, trained_parameters


class HorovodGroup(Group):
    """The ranks that horovodrun started."""

    def __init__(self) -> None:
        import horovod.torch as hvd

        self.hvd = hvd
        hvd.init()
        self.rank = hvd.rank()
        self.world_size = hvd.size()
        self.local_rank = hvd.local_rank()
        self.local_world_size = hvd.local_size()
        end_with_launcher()

    def leave(self, has_failed: bool) -> None:
        if not has_failed:
            self.hvd.shutdown()

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return self.hvd.allgather(rows)

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        return self.hvd.allreduce(values, op=self.hvd.Sum)

    def add_up(self, values: torch.Tensor) -> None:
        self.hvd.allreduce_(values, op=self.hvd.Sum)

    def broadcast(self, value: Any) -> Any:
        # The default name is that of the type; ranks whose values differ in type would wait for each other.
        return self.hvd.broadcast_object(value, root_rank=0, name="value")


class Horovod(Mode):
    """Each rank has the whole model. `DistributedOptimizer` sums the gradients in the
    backward pass, so the loss of the loop needs no factor."""

    launcher = "horovodrun"
    group_class = HorovodGroup
    package = "horovod.torch.mpi_ops"  # compiled for one version of torch
    install = f"bash {file_here('scripts/install_horovod.sh')}"

    def wrap(self, model: nn.Module) -> Wrapped:
        hvd = self.group.hvd
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            model.build_optimizer(self.config.train),
            named_parameters=list(trained_parameters(model).items()),
            backward_passes_per_step=self.config.train.accumulation_steps,
            op=hvd.Sum,
        )
        return model, optimizer

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

    def step(self, max_norm: float) -> tuple[torch.Tensor, bool]:
        with self.optimizer.skip_synchronize():
            return super().step(max_norm)

    def load_weights(self, weights: Tensors) -> None:
        super().load_weights(self.group.broadcast(weights))

    def load_optimizer_state(self, tensors: Tensors) -> None:
        zero_grad = self.optimizer.zero_grad
        # torch makes a step of no size to get a state, and calls this with an argument it does not know
        self.optimizer.zero_grad = lambda set_to_none: zero_grad()
        with self.optimizer.skip_synchronize():
            super().load_optimizer_state(self.group.broadcast(tensors))
        del self.optimizer.zero_grad
