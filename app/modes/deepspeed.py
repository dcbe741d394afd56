"""DeepSpeed: ZeRO shards optimizer state (stage 1), gradients too (2), parameters too (3).

https://deepspeed.readthedocs.io/en/stable/zero3.html
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config.schema import Config
from ..errors import InputError
from ..runtime.disk import read_json
from .group import ProcessGroupMode
from .mode import BuildOptimizer, Tensors

# Sections of DeepSpeed's configuration that settings of `train` replace in every mode
REPLACED = ("train_batch_size", "optimizer", "scheduler", "fp16", "bf16", "bfloat16", "torch_autocast", "amp")


class DeepSpeed(ProcessGroupMode):
    """The engine runs forward, backward and the step; precision and loss scale are ours.

    DeepSpeed's own fp16 and bf16 keep low-precision weights, and its autocast clips gradients that are still
    scaled (0.19.8), so neither would do the same job. Autocast is around the forward method instead.
    """

    caches_casts = False
    has_float64 = False  # ZeRO keeps its copies of the weights in fp32
    engine: Any = None

    @classmethod
    def unavailable_reason(cls) -> str | None:
        if find_spec("deepspeed"):
            return None
        return "DeepSpeed is not installed: DS_BUILD_OPS=0 pip install -r requirements/deepspeed.txt"

    def __enter__(self) -> DeepSpeed:
        super().__enter__()
        # DeepSpeed would take CUDA wherever there is one, and refuse to start as one process.
        os.environ.setdefault("DS_ACCELERATOR", self.device.type)
        os.environ.setdefault("LOCAL_RANK", str(self.group.local_rank))
        import deepspeed

        # An all-reduce in shared memory that only inference uses. It would be compiled at the first start.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # It still calls collectives by names that torch 2.13 deprecates.
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
        self.deepspeed, self.stage = deepspeed, self.config.deepspeed.stage
        return self

    @property
    def state_form(self) -> str:
        return f"cut by DeepSpeed (ZeRO {self.stage}, {self.group.world_size} processes)"

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        if self.engine is not None:
            self.engine.destroy()
        if self.precision.name != "fp32":
            model.forward = self.precision.autocast()(model.forward)
        if self.precision.name == "fp16":
            self.scaler = ZeroScaler(self.device.type)
        self.engine, *_ = self.deepspeed.initialize(
            model=model,
            optimizer=build_optimizer(model),
            config=deepspeed_config(self.config, self.group.world_size),
            dist_init_required=False,
        )
        self.module, self.optimizer = self.engine, self.engine.optimizer

    def unwrapped_module(self) -> nn.Module:
        return self.engine.module

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.module(**inputs)

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        # `no_sync` is forbidden at stages 2 and 3, which reduce each micro-batch into their shards. When it
        # knows that this is not the boundary, the engine leaves gradients unsynchronised where its stage can.
        self.engine.set_gradient_accumulation_boundary(is_last)
        yield

    def backward(self, loss: torch.Tensor) -> None:
        if self.scaler:
            self.optimizer.override_loss_scale(self.scaler.get_scale())
        # The engine averages over ranks
        self.engine.backward(loss * self.group.world_size, scale_wrt_gas=False)

    def unscale(self) -> None:
        """The engine unscales and clips in its step, and knows the norm only then."""

    def clip(self, max_norm: float) -> None:
        return None

    def update(self, norm: None) -> tuple[torch.Tensor, bool]:
        self.engine.step()
        skipped = bool(self.optimizer.overflow)
        if self.scaler:
            self.scaler.update_after(skipped)
        return torch.tensor(float("inf") if skipped else float(self.engine.get_global_grad_norm())), skipped

    # DeepSpeed's own checkpoints are pickles. Each rank's optimizer steps on flat shards, which are saved
    # side by side: they fit the same stage and number of processes only.

    def weights(self) -> Tensors:
        with self.whole_parameters():
            return super().weights()

    def load_weights(self, weights: Tensors) -> None:
        with self.whole_parameters():
            super().load_weights(weights)
        self.optimizer.refresh_fp32_params()

    def optimizer_state(self) -> Tensors:
        return {
            f"{index}/{name}": self.group.gather(value.cpu()) if value.dim() else value.cpu()
            for index, shard in enumerate(self.shards())
            for name, value in self.optimizer.optimizer.state[shard].items()
        }

    def load_optimizer_state(self, tensors: Tensors) -> None:
        shards = self.shards()
        for key in self.group.broadcast(list(tensors)):
            index, _, name = key.partition("/")
            value, shard = self.group.broadcast(tensors.get(key)), shards[int(index)]
            own = value.chunk(self.group.world_size)[self.group.rank] if value.dim() else value
            self.optimizer.optimizer.state[shard][name] = own.clone().to(shard.device)

    def gradients(self) -> Tensors:
        from deepspeed.utils import safe_get_full_grad

        scale = self.scaler.get_scale() if self.scaler else 1.0
        return {
            name: safe_get_full_grad(value).cpu() / scale
            for name, value in self.unwrapped_module().named_parameters()
            if value.requires_grad
        }

    def shards(self) -> list[torch.Tensor]:
        """Return this rank's parts of the flat weights, on which its optimizer steps."""
        zero = self.optimizer
        return zero.fp32_partitioned_groups_flat if self.stage == 3 else zero.single_partition_of_fp32_groups

    def whole_parameters(self) -> AbstractContextManager:
        """Return a context in which parameters that stage 3 has cut are whole; rank 0's changes are kept."""
        if self.stage < 3:
            return nullcontext()
        parameters = list(self.engine.module.parameters())
        return self.deepspeed.zero.GatheredParameters(parameters, modifier_rank=0)


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


def deepspeed_config(config: Config, world_size: int) -> dict[str, Any]:
    """Return the dictionary for `deepspeed.initialize`, with the user's JSON merged in; raises InputError
    where it sets what follows from our settings."""
    settings, path, stage = config.train, Path(config.deepspeed.config or ""), config.deepspeed.stage
    passes = world_size * settings.accumulation_steps
    ours = {
        # For DeepSpeed's statistics only: the batch plan decides what a rank gets.
        "train_micro_batch_size_per_gpu": math.ceil(settings.batch_size / passes),
        "gradient_accumulation_steps": settings.accumulation_steps,
        # Always written: DeepSpeed's default is 1.0, not 0
        "gradient_clipping": settings.max_grad_norm,
        "steps_per_print": None,
        # The optimizer is torch's own, with or without offload, so that all modes make the same step.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    users = read_json(path) if config.deepspeed.config else {}
    if not isinstance(users, dict) or not isinstance(users.get("zero_optimization", {}), dict):
        raise InputError(f"deepspeed.config: {path}, and its zero_optimization, must be mappings of keys")
    zero = {key: value for key, value in users.pop("zero_optimization", {}).items() if value != "auto"}
    users = {key: value for key, value in users.items() if value != "auto"}
    own = [key for key in users if key in ours or key in REPLACED]
    if own or zero.setdefault("stage", stage) != stage:
        raise InputError(
            f"{path}: {', '.join(own) or 'zero_optimization.stage'} must follow from the settings of train "
            'and deepspeed, as in every mode; change these, and remove it or write "auto"'
        )
    return ours | users | {"zero_optimization": zero}
