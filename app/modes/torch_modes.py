"""The modes that need torch only: one process, DataParallel, DDP (started by a launcher or by spawn), FSDP2.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from ..runtime.devices import Precision, has_memory, is_cuda
from .group import TorchGroup
from .mode import BuildOptimizer, Mode, Wrapped


class Single(Mode):
    """One process on one device, an accelerator or the CPU: the defaults of `Mode`."""

    records_passes = True


class DataParallel(Mode):
    """One process drives all GPUs; each pass copies the model, and splits dim 0 of the inputs: the batch must
    be padded, not packed."""

    accepts_packed = False

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> Wrapped:
        module = InPrecision(model, self.precision)
        return (nn.DataParallel(module) if is_cuda(self.device) else module), build_optimizer(model)

    def unwrapped_module(self) -> nn.Module:
        return getattr(self.module, "module", self.module).model


class InPrecision(nn.Module):
    """A model whose forward pass enters autocast itself. DataParallel runs each copy of it in a thread, where
    it turns autocast on again without its dtype: on CUDA that is fp16. A module, because the copies of a
    model share its other attributes."""

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.precision = precision

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        with self.precision.autocast():
            return self.model(**inputs)


class ProcessGroupMode(Mode):
    """A rank of a torch process group."""

    launcher = "torchrun"
    group_class = TorchGroup

    def backward(self, loss: torch.Tensor) -> None:
        # The factor undoes the averaging over ranks, which would make a mean of means
        super().backward(loss * self.group.world_size)


class DDP(ProcessGroupMode):
    """Each rank has the whole model. Gradients are averaged over ranks during the backward pass."""

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> Wrapped:
        devices = [self.device] if has_memory(self.device) else None
        # torch 2.13 renames broadcast_buffers; 2.11 does not know the new name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            module = DistributedDataParallel(
                model, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        return module, build_optimizer(model)

    def unwrapped_module(self) -> nn.Module:
        return self.module.module

    def warm_up(self, inputs: dict[str, torch.Tensor]) -> None:
        # DDP rebuilds its buckets after the first backward pass, and three or more ranks add up the values of
        # a bucket in an order that depends on their place in it. With the buckets rebuilt before the first
        # step, a resumed run computes the same bits as one that was never stopped.
        self.forward(inputs).sum().backward()
        self.optimizer.zero_grad()

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        # Around the forward pass too: DDP decides there whether this backward is synchronised.
        return nullcontext() if is_last else self.module.no_sync()


class SpawnedDDP(DDP):
    """The same, with processes that are started by `mp.spawn`: one command, with no launcher."""

    launcher = "spawn"


class FSDP(ProcessGroupMode):
    """Parameters, gradients and optimizer state are sharded over the ranks, and parameters are gathered layer
    by layer. The optimizer is built on shards, after the wrapping."""

    is_sharded = True

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> Wrapped:
        policy = MixedPrecisionPolicy()
        if self.config.train.precision == "bf16":
            # Parameters are sent as autocast casts them, in half the bytes; shards, gradients that are added
            # up, and the optimizer stay fp32. Not for fp16: the loss scaler would have to fit gradients of
            # fp16 parameters too.
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        mesh = init_device_mesh(self.device.type, (self.group.world_size,))
        layers = [module for name, module in model.named_modules() if name.rpartition(".")[2].isdigit()]
        for module in [*layers, model]:
            fully_shard(module, mesh=mesh, mp_policy=policy)
        return model, build_optimizer(model)

    def unwrapped_module(self) -> nn.Module:
        # It keeps whole parameters after a forward pass, and its state is that of the sharded ones
        self.module.reshard()
        return self.module

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        self.module.set_requires_gradient_sync(is_last)
        yield
