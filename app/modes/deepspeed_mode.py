"""DeepSpeed with ZeRO, which is imported when the mode is entered.

https://deepspeed.readthedocs.io/en/stable/zero3.html
"""

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config.schema import Config
from ..errors import InputError
from ..program import install_command
from ..runtime.disk import read_json
from .mode import ProcessGroupMode, Tensors, Wrapped, check_names, trained_parameters

# Sections of DeepSpeed's configuration that settings of `train` replace in every mode
REPLACED_SECTIONS = (
    "train_batch_size",
    "optimizer",
    "scheduler",
    "fp16",
    "bf16",
    "bfloat16",
    "torch_autocast",
    "amp",
    "compute_grad_norm",
)


class DeepSpeed(ProcessGroupMode):
    """ZeRO shards optimizer state (stage 1), gradients too (2), parameters too (3). The
    engine runs forward, backward and the step; precision is ours. DeepSpeed's own fp16 and
    bf16 keep low-precision weights, and its autocast clips gradients that are still scaled
    (0.19.8), so neither would do the same job."""

    is_sharded = True
    has_float64 = False  # ZeRO keeps its copies of the weights in fp32
    package = "deepspeed"
    install = f"DS_BUILD_OPS=0 {install_command('deepspeed', constrained=False)}"

    def start_library(self) -> None:
        if self.config.train.precision == "fp16":
            raise InputError("DeepSpeed needs train.precision fp32 or bf16, found fp16; choose one of these")
        # DeepSpeed would take CUDA wherever there is one, and refuse to start as one process.
        os.environ.setdefault("DS_ACCELERATOR", self.device.type)
        os.environ.setdefault("LOCAL_RANK", str(self.group.local_rank))
        import deepspeed
        from deepspeed.runtime.config import DeepSpeedConfig, DeepSpeedConfigError

        settings = deepspeed_config(self.config)
        try:
            DeepSpeedConfig(settings)
        except (DeepSpeedConfigError, AssertionError, AttributeError, TypeError, ValueError) as error:
            path = self.config.deepspeed.config
            raise InputError(f"{path}: DeepSpeed refuses it: {error}; correct or remove that") from error
        # An all-reduce in shared memory that only inference uses. It would be compiled at the first start.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # DeepSpeed still calls collectives by names that torch 2.13 deprecates.
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
        self.deepspeed = deepspeed
        self.stage = self.config.deepspeed.stage
        self.state_form = f"cut by DeepSpeed (ZeRO {self.stage}, {self.group.world_size} processes)"

    def on_device(self, model: nn.Module) -> nn.Module:
        if self.stage < 3:
            return super().on_device(model)
        # As `deepspeed.initialize` does it, which makes this of torch's process group
        self.deepspeed.init_distributed(dist_init_required=False)
        # It moves a parameter, and cuts it before the next one; `initialize` would move the whole model first
        self.deepspeed.zero.Init(
            module=model, config_dict_or_path=deepspeed_config(self.config), dtype=torch.float32
        )
        for buffer in model.buffers():
            buffer.data = buffer.to(self.device)
        return model

    def wrap(self, model: nn.Module) -> Wrapped:
        self.engine, optimizer, *_ = self.deepspeed.initialize(
            model=model,
            optimizer=model.build_optimizer(self.config.train),
            config=deepspeed_config(self.config),
            dist_init_required=False,
        )
        return self.engine, optimizer

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        # `no_sync` is forbidden at stages 2 and 3, which reduce each micro-batch into their shards. Told that
        # this is not the boundary, the engine leaves gradients unsynchronised where its stage can.
        self.engine.set_gradient_accumulation_boundary(is_last)
        yield

    def backward(self, loss: torch.Tensor) -> None:
        # The engine averages over ranks
        self.engine.backward(loss * self.group.world_size, scale_wrt_gas=False)

    def step(self, max_norm: float) -> tuple[torch.Tensor, bool]:
        # The engine clips, and makes no step where gradients are not finite
        self.engine.step()
        if self.optimizer.overflow:
            return torch.tensor(math.inf), True
        return torch.tensor(float(self.engine.get_global_grad_norm())), False

    # DeepSpeed's own checkpoints are pickles. Each rank's optimizer steps on flat shards, which are saved
    # side by side: they fit the same stage and number of processes only.

    def weights(self) -> Tensors:
        if self.stage < 3:
            return super().weights()
        weights = {}
        for name, value in self.saved_values().items():
            # One after the other: all together are the whole model
            with self.whole_parameter(value):
                if self.group.rank == 0:
                    weights[name] = value.detach().to("cpu", copy=True)
        return weights

    def load_weights(self, weights: Tensors) -> None:
        if self.stage < 3:
            super().load_weights(weights)
            self.optimizer.refresh_fp32_params()
            return
        values = self.saved_values()
        trained = trained_parameters(self.unwrapped_module().model)
        loaded_names = self.group.broadcast(list(weights))
        check_names("weights", needed=trained, loaded=loaded_names, allowed=values)
        for name in loaded_names:
            value = values[name]
            if isinstance(value, nn.Parameter):
                with self.whole_parameter(value):
                    if self.group.rank == 0:
                        value.data.copy_(weights[name])
            else:
                value.copy_(self.group.broadcast(weights.get(name)))
        self.optimizer.refresh_fp32_params()

    def saved_values(self) -> dict[str, torch.Tensor]:
        """Return the parameters and buffers of transformers' model that a checkpoint has;
        where an adapter is trained, only what is trained."""
        module = self.unwrapped_module()
        values = module.model.state_dict(keep_vars=True)
        if module.adapter is None:
            return values
        frozen = {name for name, value in module.model.named_parameters() if not value.requires_grad}
        return {name: value for name, value in values.items() if name not in frozen}

    def whole_parameter(self, value: torch.Tensor) -> AbstractContextManager:
        """Return a context in which a parameter that stage 3 has cut is whole; rank 0's changes are kept."""
        return self.deepspeed.zero.GatheredParameters([value], modifier_rank=0)

    def optimizer_state(self) -> Tensors:
        tensors = {}
        for index, shard in enumerate(self.shards()):
            for name, value in self.optimizer.optimizer.state[shard].items():
                whole = value.cpu()
                # A number, such as that of the steps, is the same on all ranks
                if value.dim():
                    whole = self.group.gather(whole)
                tensors[f"{index}/{name}"] = whole
        return tensors

    def load_optimizer_state(self, tensors: Tensors) -> None:
        shards = self.shards()
        for key in self.group.broadcast(list(tensors)):
            index, _, name = key.partition("/")
            shard = shards[int(index)]
            value = self.group.broadcast(tensors.get(key))
            if value.dim():
                value = value.chunk(self.group.world_size)[self.group.rank]
            self.optimizer.optimizer.state[shard][name] = value.clone().to(shard.device)

    def shards(self) -> list[torch.Tensor]:
        """Return this rank's parts of the flat weights, on which its optimizer steps."""
        if self.stage == 3:
            return self.optimizer.fp32_partitioned_groups_flat
        return self.optimizer.single_partition_of_fp32_groups

    def gradients(self) -> Tensors:
        from deepspeed.utils import safe_get_full_grad

        gradients = {}
        for name, parameter in trained_parameters(self.unwrapped_module()).items():
            gradients[name] = safe_get_full_grad(parameter).cpu()
        return gradients


def deepspeed_config(config: Config) -> dict[str, Any]:
    """Return the dictionary for `deepspeed.initialize`, with the user's JSON merged in;
    raises InputError where that sets what follows from our settings."""
    our_settings = {
        # For DeepSpeed's statistics only: the batch plan decides what a rank gets.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": config.train.accumulation_steps,
        # Always written: DeepSpeed's default is 1.0, not 0
        "gradient_clipping": config.train.max_grad_norm,
        "steps_per_print": None,
        # The optimizer is torch's own, with or without offload, so that all modes make the same step.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    path = config.deepspeed.config
    user_settings = {}
    if path:
        user_settings = read_json(Path(path))
    zero_settings = None
    if isinstance(user_settings, dict):
        zero_settings = user_settings.get("zero_optimization", {})
    if not isinstance(zero_settings, dict):
        raise InputError(
            f"{path}: an object is needed, and one as zero_optimization, found {user_settings!r:.80}"
        )
    our_keys = {*our_settings, *REPLACED_SECTIONS, "stage"}
    refused_keys = [key for key in (*user_settings, *zero_settings) if key in our_keys]
    if refused_keys:
        raise InputError(
            f"{path}: {', '.join(refused_keys)} must follow from the settings of train and deepspeed; change "
            "these, and remove it from the file"
        )
    zero_settings = zero_settings | {"stage": config.deepspeed.stage}
    return our_settings | user_settings | {"zero_optimization": zero_settings}
