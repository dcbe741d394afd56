"""DeepSpeed: ZeRO cuts optimizer state (1), gradients (2) and parameters (3) over the ranks; 0 cuts nothing.

https://deepspeed.readthedocs.io/en/stable/zero3.html
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from app.strategies.base import StepResult, to_cpu
from app.strategies.deepspeed_config import deepspeed_config
from app.strategies.process_group import ProcessGroupStrategy


class DeepSpeed(ProcessGroupStrategy):
    """The engine runs forward, backward and, with ZeRO, the step; precision and loss scale are ours, as in every mode.

    DeepSpeed's own fp16 and bf16 keep low-precision weights, and its autocast clips gradients that are still scaled
    (0.19.8), so neither would do the same job. Autocast is put around the model's forward method instead.
    """

    keeps_casts = False
    evaluation_mode = torch.no_grad  # parameters that stage 3 gathers in inference mode could not be trained again
    engine: Any = None

    @classmethod
    def missing(cls) -> str | None:
        try:
            version("deepspeed")
        except PackageNotFoundError:
            return "DeepSpeed is not installed: DS_BUILD_OPS=0 pip install -r requirements-deepspeed.txt"
        return super().missing()

    def join(self) -> None:
        super().join()
        os.environ.setdefault("DS_ACCELERATOR", self.device.type)  # else it takes CUDA wherever there is one
        os.environ.setdefault("LOCAL_RANK", str(self.local_rank))  # it refuses to start without, also alone
        import deepspeed

        # An all-reduce in shared memory that only inference uses. It would be compiled at the first start.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # It still calls collectives by names that torch 2.13 renames.
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")

    def groups(self) -> list[dist.ProcessGroup]:
        # DeepSpeed makes groups of its own, which torch lists here only.
        return list(dist.distributed_c10d._world.pg_map)

    def setup(self, model: nn.Module, build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        import deepspeed

        if self.engine is not None:
            self.engine.destroy()
        model.to(self.device)
        model.forward = within(self.autocast, model.forward)
        self.stage = self.whole_config.deepspeed.stage
        self.engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=build_optimizer(model),
            config=deepspeed_config(self.whole_config, self.world_size),
            dist_init_required=False,
        )
        self.module = self.engine
        self.optimizer = self.engine.optimizer
        self.scaler = self.new_scaler()

    def new_scaler(self) -> torch.amp.GradScaler | None:
        if self.stage == 0 or self.config.precision != "fp16":
            return super().new_scaler()
        return ZeroScaler(self.device.type)

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.module(**inputs).float()

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        # `no_sync` is forbidden at stages 2 and 3, which reduce each micro-batch into their parts; told that it is not the
        # boundary, the engine leaves gradients unsynchronised where its stage can.
        self.engine.set_gradient_accumulation_boundary(is_last)
        yield

    def backward(self, loss: torch.Tensor) -> None:
        loss = loss * self.world_size  # the engine averages over ranks
        if self.scaler and self.stage == 0:
            loss = self.scaler.scale(loss)
        elif self.scaler:
            self.optimizer.override_loss_scale(self.scaler.get_scale())
        self.engine.backward(loss, scale_wrt_gas=False)

    def step(self, max_norm: float) -> StepResult:
        if self.stage == 0:  # the engine has reduced the gradients, and the optimizer is torch's own
            return super().step(max_norm)
        self.engine.step()
        skipped = bool(self.optimizer.overflow)
        if self.scaler:
            self.scaler.update_after(skipped)
        norm = float("inf") if skipped else float(self.engine.get_global_grad_norm())
        return StepResult(torch.tensor(norm), skipped)

    def plain_module(self) -> nn.Module:
        return self.engine.module

    def gradients(self) -> dict[str, torch.Tensor]:
        if self.stage == 0:
            return super().gradients()
        from deepspeed.utils import safe_get_full_grad

        scale = self.scaler.get_scale() if self.scaler else 1.0
        parameters = self.plain_module().named_parameters()
        return {name: to_cpu(safe_get_full_grad(parameter)) / scale for name, parameter in parameters}

    def state_dict(self) -> dict[str, torch.Tensor]:
        found = {}
        for name, value in self.plain_module().state_dict(keep_vars=True).items():
            with self.whole(value):
                if self.rank == 0:
                    found[name] = to_cpu(value)
        return found

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, value in self.plain_module().state_dict(keep_vars=True).items():
            with self.whole(value), torch.no_grad():
                if self.rank == 0:
                    value.copy_(state[name])
                dist.broadcast(value.data, src=0)
                full = value.detach().float().clone()
            if self.stage > 0 and isinstance(value, nn.Parameter):
                self.set_zero(value, full)  # ZeRO steps on a copy of its own

    def whole(self, value: torch.Tensor) -> Any:
        """Return a context in which a parameter that stage 3 has cut is whole, and changes to it are kept."""
        import deepspeed

        return deepspeed.zero.GatheredParameters([value] if hasattr(value, "ds_id") else [], modifier_rank=0)

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        if self.stage == 0:
            return super().optimizer_state()
        from deepspeed.utils import safe_get_full_optimizer_state

        self.link()
        found = {}
        parts = self.optimizer.optimizer.state
        figures = {figure: value for part in parts.values() for figure, value in part.items()}
        for name, parameter in self.plain_module().named_parameters():
            for figure, value in figures.items():
                whole = value if value.dim() == 0 else safe_get_full_optimizer_state(parameter, figure)
                if self.rank == 0:
                    found[f"{name}/{figure}"] = to_cpu(whole)
        return found

    def load_optimizer_state(self, state: dict[str, torch.Tensor]) -> None:
        if self.stage == 0:
            super().load_optimizer_state(state)
            return
        state = self.from_rank_0(state)
        figures = {key.rpartition("/")[2]: value for key, value in state.items()}
        for part in self.partitions():
            self.optimizer.optimizer.state[part] = {
                figure: value.clone() if value.dim() == 0 else torch.zeros_like(part)
                for figure, value in figures.items()
            }
        self.link()
        parameters = dict(self.plain_module().named_parameters())
        for key, value in state.items():
            name, _, figure = key.rpartition("/")
            if value.dim():
                self.set_zero(parameters[name], value, figure)

    def set_zero(self, parameter: nn.Parameter, value: torch.Tensor, figure: str | None = None) -> None:
        """Write a full tensor into ZeRO's copy of a parameter, or of a figure of its optimizer state."""
        from deepspeed import utils

        if self.stage < 3 and figure is None:
            utils.safe_set_full_fp32_param(parameter, value)
        elif self.stage < 3:
            utils.safe_set_full_optimizer_state(parameter, value, figure)
        else:
            # The full forms fail at stage 3 where a parameter does not come out even over the ranks (0.19.8).
            size = parameter.ds_tensor.numel()
            padded = nn.functional.pad(value.flatten(), (0, size * self.world_size - value.numel()))
            part = padded[self.rank * size :][:size]
            if figure is None:
                utils.safe_set_local_fp32_param(parameter, part)
            else:
                utils.safe_set_local_optimizer_state(parameter, part, figure)

    def link(self) -> None:
        """Tie each parameter to its stretch of the flat optimizer state.

        Stages 1 and 2 do so themselves, but after the step of the first parameter group, when the others have no state yet
        (0.19.8), and so leave those without.
        """
        if self.stage < 3:
            self.optimizer._hp_optimizer_states_linked = False
            self.optimizer._lazy_init_hp_params_optimizer_state()

    def partitions(self) -> list[torch.Tensor]:
        """Return the flat tensors on which this rank's optimizer steps."""
        return (
            self.optimizer.fp32_partitioned_groups_flat
            if self.stage == 3
            else self.optimizer.single_partition_of_fp32_groups
        )


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


def within(context: Callable[[], Any], function: Callable) -> Callable:
    """Return `function` run in `context()`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return call
