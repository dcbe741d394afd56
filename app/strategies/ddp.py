"""DistributedDataParallel, described by the environment: torchrun, torch.distributed.launch, or any launcher like them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from app.strategies.process_group import ProcessGroupStrategy

HOOKS = {"fp16": fp16_compress_hook, "bf16": bf16_compress_hook}


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
        if compress := HOOKS.get(self.whole_config.ddp.compression):
            # Wrapped, because DDP knows torch's hooks by their names and wants NCCL for bf16; gloo can do it too.
            self.module.register_comm_hook(None, lambda state, bucket: compress(dist.group.WORLD, bucket))

    @property
    def recovers(self) -> bool:
        return True

    def settle(self, inputs: dict[str, torch.Tensor]) -> None:
        # DDP lays its buckets out anew behind the first backward pass, and three or more ranks add up what is in a bucket in
        # an order that depends on its place. With the layout settled before the first step, a run that goes on computes
        # what one that was never stopped does, to the last bit.
        self.forward(inputs).sum().backward()
        self.zero_grad()

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        # Around the forward pass too: DDP decides there whether this backward is synchronised.
        return nullcontext() if is_last else self.module.no_sync()

    def plain_module(self) -> nn.Module:
        return self.module.module
