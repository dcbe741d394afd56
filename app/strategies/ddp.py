"""DistributedDataParallel, described by the environment: torchrun, torch.distributed.launch, or any launcher
like them.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from ..runtime.precision import DTYPES
from .strategy import BuildOptimizer
from .torch_group import ProcessGroupStrategy

HOOKS = {"fp16": fp16_compress_hook, "bf16": bf16_compress_hook}


class DDP(ProcessGroupStrategy):
    """Each rank has the whole model. Gradients are averaged over ranks during the backward pass; without
    torch's wrapper after it."""

    can_retry = True

    @property
    def wraps(self) -> bool:
        """Whether torch's DistributedDataParallel is around the model."""
        return self.config.ddp.wrapper

    @property
    def can_cast_jointly(self) -> bool:
        return not self.wraps

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        super().wrap(model, build_optimizer)
        if not self.wraps:
            # As DistributedDataParallel does: all begin with rank 0's
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)
            return
        devices = [self.device] if self.device.type == "cuda" else None
        # torch 2.13 renames broadcast_buffers; 2.11 does not know the new name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.module = DistributedDataParallel(
                model, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        if compress := HOOKS.get(self.config.ddp.compression):
            # Wrapped, because DDP recognises torch's hooks by name and requires NCCL for bf16; gloo can do it
            # too.
            self.module.register_comm_hook(None, lambda state, bucket: compress(dist.group.WORLD, bucket))

    def unwrapped_module(self) -> nn.Module:
        return self.module.module if self.wraps else self.module

    def warm_up(self, inputs: dict[str, torch.Tensor]) -> None:
        # DDP rebuilds its buckets after the first backward pass, and three or more ranks add up the values of
        # a bucket in an order that depends on their place in it. With the buckets rebuilt before the first
        # step, a resumed run computes the same bits as one that was never stopped.
        if self.wraps:
            self.forward(inputs).sum().backward()
            self.zero_grad()

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        if not self.wraps:
            return self.averaging() if is_last and self.group.world_size > 1 else nullcontext()
        # Around the forward pass too: DDP decides there whether this backward is synchronised.
        return nullcontext() if is_last else self.module.no_sync()

    @contextmanager
    def averaging(self) -> Iterator[None]:
        """Average the gradients over the ranks at the end, by one all-reduce, unless the pass has failed."""
        yield
        gradients = [parameter.grad for parameter in self.module.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        flat = flat.to(DTYPES.get(self.config.ddp.compression, flat.dtype)).div_(self.group.world_size)
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(
            gradients, [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
        )
