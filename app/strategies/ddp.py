"""DistributedDataParallel, described by the environment: torchrun, torch.distributed.launch, or any launcher like them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from app.strategies.process_group import ProcessGroupStrategy


class DDP(ProcessGroupStrategy):
    """Each rank has the whole model; gradients are averaged over ranks while backward goes on."""

    def setup(self, model: nn.Module, build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        super().setup(model, build_optimizer)
        devices = [self.device] if self.device.type == "cuda" else None
        with warnings.catch_warnings():  # torch 2.13 renames broadcast_buffers; 2.11 does not know the new name
            warnings.simplefilter("ignore", FutureWarning)
            self.module = DistributedDataParallel(
                model, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        # Around the forward pass too: DDP decides there whether this backward is synchronised.
        return nullcontext() if is_last else self.module.no_sync()

    def plain_module(self) -> nn.Module:
        return self.module.module
