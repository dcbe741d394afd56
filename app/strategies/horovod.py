"""Horovod: each rank has the whole model; gradients are summed over ranks while backward goes on, without torch's groups.

https://horovod.readthedocs.io/en/stable/pytorch.html
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from app.errors import InputError
from app.runtime.devices import choose_device
from app.strategies.base import StepResult, Strategy
from app.strategies.process_group import end_with_launcher, leave


class Horovod(Strategy):
    """`DistributedOptimizer` sums the gradients, so that the loop's loss (a sum over rows / rows) needs no factor."""

    one_process = False

    @classmethod
    def missing(cls) -> str | None:
        try:
            import horovod.torch  # noqa: F401
        except ImportError as error:
            return f"Horovod is not installed for this torch ({error}); install it: bash scripts/install_horovod.sh"
        return None

    @classmethod
    def command(cls, script: list[str], processes: int) -> list[str]:
        run = ["-m", "horovod.runner.launch", "-np", str(processes), "-H", f"localhost:{processes}", "--gloo"]
        return [sys.executable, *run, sys.executable, *script]

    @classmethod
    def launch(cls, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        leave(work(*arguments))

    def __enter__(self) -> Horovod:
        import horovod.torch as hvd

        self.hvd = hvd
        hvd.init()
        self.rank, self.world_size = hvd.rank(), hvd.size()
        self.local_rank, self.local_world_size = hvd.local_rank(), hvd.local_size()
        asked = int(os.environ.get("WORLD_SIZE", os.environ.get("HOROVOD_SIZE", 1)))
        if asked != self.world_size:
            raise InputError(
                f"{asked} processes were asked for, but Horovod has {self.world_size}, each training alone; start it with: "
                f"horovodrun -np {asked} -H localhost:{asked} --gloo python run_horovod.py"
            )
        end_with_launcher()
        super().__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        if failure[0] is None:
            self.hvd.shutdown()

    def choose_device(self) -> torch.device:
        return choose_device(self.config.device, self.local_rank)

    def setup(self, model: nn.Module, build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        super().setup(model, build_optimizer)
        hvd = self.hvd
        hvd.broadcast_parameters(self.module.state_dict(), root_rank=0)
        compression = self.whole_config.horovod.compression
        self.optimizer = hvd.DistributedOptimizer(
            self.optimizer,
            named_parameters=self.module.named_parameters(),
            backward_passes_per_step=self.config.accumulation_steps,
            compression=getattr(hvd.Compression, compression),
            op=hvd.Sum,
        )

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        # The last global batch may have fewer micro-batches, so the count is not left to the optimizer: it starts again
        # at 2 before each micro-batch, which no backward pass uses up, and at 1 before the last, which sends the gradients.
        self.optimizer.set_backward_passes_per_step(1 if is_last else 2)
        yield
        if is_last:
            self.optimizer.synchronize()  # before unscaling and clipping, which need the whole gradients

    def step(self, max_norm: float) -> StepResult:
        with self.optimizer.skip_synchronize():
            return super().step(max_norm)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return self.hvd.allgather(rows)

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        return self.hvd.allreduce(values, op=self.hvd.Sum)

    def broadcast(self, value: Any) -> Any:
        # By its default the name is that of the type, and ranks whose values differ in type would wait for each other.
        return self.hvd.broadcast_object(value, root_rank=0, name="value")

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        if self.rank == 0:
            super().load_state_dict(state)
        self.hvd.broadcast_parameters(self.module.state_dict(), root_rank=0)

    def load_optimizer_state(self, state: dict[str, torch.Tensor]) -> None:
        shapes = self.broadcast({key: (value.shape, value.dtype) for key, value in state.items()})
        if not shapes:
            return
        # Zeros on the other ranks: where there is no state, broadcast_optimizer_state takes a step to make some, and
        # that step decays the weights.
        zeros = {key: torch.zeros(shape, dtype=dtype) for key, (shape, dtype) in shapes.items()}
        super().load_optimizer_state(state if self.rank == 0 else zeros)
        self.hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
