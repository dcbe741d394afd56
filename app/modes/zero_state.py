"""The full state of a DeepSpeed run, whose ZeRO optimizers keep their own flat and sharded copies of it.

https://deepspeed.readthedocs.io/en/stable/zero3.html#debugging
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .full_state import Tensors, to_cpu
from .torch_group import BroadcastState


class Stage0State(BroadcastState):
    """Stage 0: whole tensors and torch's own optimizer."""

    def weights(self) -> Tensors:
        weights = {}
        for name, value in self.held().items():
            with whole(value):
                if self.group.rank == 0:
                    weights[name] = to_cpu(value)
        return weights

    def load_weights(self, weights: Tensors) -> None:
        for name, value in self.held().items():
            with whole(value), torch.no_grad():
                if self.group.rank == 0:
                    value.copy_(weights[name])
                dist.broadcast(value.data, src=0)
                full = value.detach().float().clone()
            if isinstance(value, nn.Parameter) and value.requires_grad:
                self.set_master_weight(value, full)

    def set_master_weight(self, parameter: nn.Parameter, value: torch.Tensor) -> None:
        """Write a full tensor into what the optimizer steps on: here the parameter."""


class ZeroState(Stage0State):
    """Stages 1 to 3: each rank's optimizer steps on a flat shard of the parameters."""

    @property
    def zero(self) -> Any:
        """DeepSpeed's ZeRO optimizer, around torch's."""
        return self.mode.optimizer

    @property
    def is_stage_3(self) -> bool:
        """Whether parameters are sharded too."""
        return self.mode.stage == 3

    def gradients(self) -> Tensors:
        from deepspeed.utils import safe_get_full_grad

        scale = self.loss_scale()
        return {
            name: to_cpu(safe_get_full_grad(value)) / scale
            for name, value in self.module.named_parameters()
            if value.requires_grad
        }

    def optimizer(self) -> Tensors:
        from deepspeed.utils import safe_get_full_optimizer_state

        self.link_optimizer_state()
        tensors = {}
        shards = self.zero.optimizer.state.values()
        examples = {name: value for shard in shards for name, value in shard.items()}
        for parameter_name, parameter in self.module.named_parameters():
            for name, example in examples.items() if parameter.requires_grad else ():
                value = example if example.dim() == 0 else safe_get_full_optimizer_state(parameter, name)
                if self.group.rank == 0:
                    tensors[f"{parameter_name}/{name}"] = to_cpu(value)
        return tensors

    def load_optimizer(self, tensors: Tensors) -> None:
        tensors = self.group.broadcast_tensors(tensors)
        examples = {key.rpartition("/")[2]: value for key, value in tensors.items()}
        zero = self.zero
        flat = zero.fp32_partitioned_groups_flat if self.is_stage_3 else zero.single_partition_of_fp32_groups
        for shard in flat:
            self.zero.optimizer.state[shard] = {
                name: value.clone() if value.dim() == 0 else torch.zeros_like(shard)
                for name, value in examples.items()
            }
        self.link_optimizer_state()
        parameters = dict(self.module.named_parameters())
        for key, value in tensors.items():
            parameter_name, _, name = key.rpartition("/")
            if value.dim():
                self.set_optimizer_state(parameters[parameter_name], value, name)

    def set_master_weight(self, parameter: nn.Parameter, value: torch.Tensor) -> None:
        from deepspeed import utils

        if self.is_stage_3:
            utils.safe_set_local_fp32_param(parameter, self.local_shard(parameter, value))
        else:
            utils.safe_set_full_fp32_param(parameter, value)

    def set_optimizer_state(self, parameter: nn.Parameter, value: torch.Tensor, name: str) -> None:
        """Write a full tensor of a parameter's optimizer state into this rank's shard."""
        from deepspeed import utils

        if self.is_stage_3:
            utils.safe_set_local_optimizer_state(parameter, self.local_shard(parameter, value), name)
        else:
            utils.safe_set_full_optimizer_state(parameter, value, name)

    def local_shard(self, parameter: nn.Parameter, value: torch.Tensor) -> torch.Tensor:
        """Return this rank's shard of a full tensor. At stage 3 DeepSpeed's functions for full tensors fail
        where the ranks' shards of a parameter differ in size (0.19.8)."""
        size = parameter.ds_tensor.numel()
        padded = nn.functional.pad(value.flatten(), (0, size * self.group.world_size - value.numel()))
        return padded[self.group.rank * size :][:size]

    def link_optimizer_state(self) -> None:
        """Link each parameter to its slice of the flat optimizer state. Stages 1 and 2 do so too, but after
        the step of the first parameter group, so the others would stay without (0.19.8)."""
        if not self.is_stage_3:
            self.zero._hp_optimizer_states_linked = False
            self.zero._lazy_init_hp_params_optimizer_state()


class ZeroScaler(torch.amp.GradScaler):
    """torch's loss scale for ZeRO optimizers, which unscale, clip and skip by themselves."""

    def update_after(self, overflow: bool) -> None:
        """Lower the scale after an overflow, raise it after enough steps without one."""
        state = self.state_dict()
        tracker = 0 if overflow else state["_growth_tracker"] + 1
        factor = state["backoff_factor"] if overflow else 1.0
        if tracker == state["growth_interval"]:
            tracker, factor = 0, state["growth_factor"]
        self.load_state_dict(state | {"scale": state["scale"] * factor, "_growth_tracker": tracker})


def whole(value: torch.Tensor) -> Any:
    """Return a context in which a parameter that stage 3 has sharded is whole, and changes to it are kept."""
    import deepspeed

    return deepspeed.zero.GatheredParameters([value] if hasattr(value, "ds_id") else [], modifier_rank=0)
