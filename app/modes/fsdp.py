"""FSDP2: parameters, gradients and optimizer state are sharded over the ranks and gathered layer by layer.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from .group import ProcessGroupMode
from .mode import BuildOptimizer


class FSDP(ProcessGroupMode):
    """Each rank holds a shard of every parameter; the optimizer is built on shards, after the wrapping."""

    caches_casts = False

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
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
        super().wrap(model, build_optimizer)

    def unwrapped_module(self) -> nn.Module:
        # It keeps whole parameters after a forward pass, and its state is that of the sharded ones
        self.module.reshard()
        return self.module

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        self.module.set_requires_gradient_sync(is_last)
        yield
