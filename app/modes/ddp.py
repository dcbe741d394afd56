"""DistributedDataParallel, described by the environment: torchrun, or any launcher like it.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..runtime.devices import has_memory
from .group import ProcessGroupMode
from .launch import Launcher
from .mode import BuildOptimizer


class DDP(ProcessGroupMode):
    """Each rank has the whole model. Gradients are averaged over ranks during the backward pass."""

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        super().wrap(model, build_optimizer)
        devices = [self.device] if has_memory(self.device) else None
        # torch 2.13 renames broadcast_buffers; 2.11 does not know the new name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.module = DistributedDataParallel(
                model, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def unwrapped_module(self) -> nn.Module:
        return self.module.module

    def warm_up(self, inputs: dict[str, torch.Tensor]) -> None:
        # DDP rebuilds its buckets after the first backward pass, and three or more ranks add up the values of
        # a bucket in an order that depends on their place in it. With the buckets rebuilt before the first
        # step, a resumed run computes the same bits as one that was never stopped.
        self.forward(inputs).sum().backward()
        self.zero_grad()

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        # Around the forward pass too: DDP decides there whether this backward is synchronised.
        return nullcontext() if is_last else self.module.no_sync()


class SpawnedDDP(DDP):
    """The same, with processes that are started by `mp.spawn`: one command, with no launcher."""

    launcher = Launcher("spawn")
