"""FSDP2: parameters, gradients and optimizer state are sharded over the ranks and gathered layer by layer.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor

from .full_state import Tensors
from .mode import BuildOptimizer
from .torch_group import BroadcastState, ProcessGroupMode

# Whole tensors, on rank 0 only
FULL = {"full_state_dict": True, "cpu_offload": True}
FROM_RANK_0 = {"full_state_dict": True, "broadcast_from_rank0": True}


class FSDPState(BroadcastState):
    """The full state of sharded parameters."""

    def weights(self) -> Tensors:
        options = StateDictOptions(**FULL, ignore_frozen_params=self.has_adapter)
        weights = get_model_state_dict(self.module, options=options)
        if self.group.world_size > 1:
            return weights
        # On the CPU the whole tensors of one process are its parameters, which training changes
        return {name: weight.clone() for name, weight in weights.items()}

    def load_weights(self, weights: Tensors) -> None:
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                # The outermost module keeps whole parameters after a forward pass
                module.reshard()
        # It changes the dictionary that it gets
        options = StateDictOptions(**FROM_RANK_0, strict=not self.has_adapter)
        set_model_state_dict(self.module, dict(weights), options=options)

    def place(self, value: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor:
        # A step count
        if value.shape != parameter.shape:
            return value
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)


class FSDP(ProcessGroupMode):
    """Each rank holds a shard of every parameter; the optimizer is built on shards, after the wrapping."""

    full_state_class = FSDPState
    has_whole_optimizer = False
    caches_casts = False

    def __enter__(self) -> FSDP:
        super().__enter__()
        self.mesh = init_device_mesh(self.device.type, (self.group.world_size,))
        return self

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        options = {"mesh": self.mesh, "mp_policy": self.gathered_in()}
        layers = [module for name, module in model.named_modules() if name.rpartition(".")[2].isdigit()]
        for layer in layers:
            fully_shard(layer, **options)
        super().wrap(fully_shard(model, **options), build_optimizer)

    def gathered_in(self) -> MixedPrecisionPolicy:
        """Return the dtypes of what is sent: under bf16, parameters as autocast casts them, in half the
        bytes.

        Shards, gradients that are added up, and the optimizer stay fp32; activations are left to autocast.
        Not for fp16: the loss scaler would have to fit gradients of fp16 parameters too.
        """
        if self.config.train.precision != "bf16":
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        self.module.set_requires_gradient_sync(is_last)
        yield
