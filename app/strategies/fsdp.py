"""FSDP2: parameters, gradients and optimizer state are cut over the ranks and gathered layer by layer.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import distribute_tensor

from app.strategies.base import full_tensor
from app.strategies.process_group import ProcessGroupStrategy

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)  # whole tensors, on rank 0 only
FROM_RANK_0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


class FSDP(ProcessGroupStrategy):
    """Each rank holds one part of every parameter. The optimizer is built on the parts, so it comes after the cut."""

    keeps_casts = False

    def join(self) -> None:
        super().join()
        self.mesh = init_device_mesh(self.device.type, (self.world_size,))

    def groups(self) -> list[dist.ProcessGroup]:
        return [*super().groups(), self.mesh.get_group()]

    def setup(self, model: nn.Module, build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        model.to(self.device)
        mesh = self.mesh
        layers = [module for name, module in model.named_modules() if name.rpartition(".")[2].isdigit()]
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        self.module = fully_shard(model, mesh=mesh)
        self.optimizer = build_optimizer(self.module)
        self.scaler = self.new_scaler()

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        self.module.set_requires_gradient_sync(is_last)
        yield

    def clip(self, max_norm: float) -> torch.Tensor:
        return full_tensor(super().clip(max_norm))

    def state_dict(self) -> dict[str, torch.Tensor]:
        return get_model_state_dict(self.module, options=FULL)

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for part in self.module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # the outermost keeps whole parameters after a forward pass
        set_model_state_dict(self.module, dict(state), options=FROM_RANK_0)  # it changes what it is given

    def place(self, value: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor:
        if value.shape != parameter.shape:  # a step count
            return value
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
