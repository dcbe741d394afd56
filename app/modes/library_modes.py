"""The modes of other libraries: Accelerate, DeepSpeed, Horovod. Each is imported when its mode is entered.

https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization
https://deepspeed.readthedocs.io/en/stable/zero3.html
https://horovod.readthedocs.io/en/stable/pytorch.html
"""

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config.schema import Config
from ..errors import InputError, install_command
from ..runtime.disk import read_json
from ..runtime.processes import end_with_launcher
from .group import Group
from .mode import DDP, Mode, ProcessGroupMode, Tensors, Wrapped, check_names, trained_parameters

# Sections of DeepSpeed's configuration that settings of `train` replace in every mode
REPLACED = ("train_batch_size", "optimizer", "scheduler", "fp16", "bf16", "bfloat16", "torch_autocast")
REPLACED += ("amp", "compute_grad_norm")


class Accelerate(DDP):
    """DDP by way of `Accelerator.prepare`. `accumulate()` counts micro-batches up to a fixed number, and
    `gather_for_metrics` drops what a sampler repeated. Here the last global batch may have fewer
    micro-batches, and the plan repeats no row. So the loop itself says which micro-batch is the last
    (`no_sync` on the others), and all gathered rows are real."""

    def start_library(self) -> None:
        from accelerate import Accelerator, DistributedDataParallelKwargs
        from accelerate.utils import GradientAccumulationPlugin

        for name in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
            if os.environ.get(variable := f"ACCELERATE_USE_{name}", "").lower() == "true":
                raise InputError(
                    f"run_accelerate.py trains as DDP, found {variable}=true; launch it with "
                    "--multi_gpu, or use run_fsdp.py or run_deepspeed.py"
                )
        precision = self.config.train.precision
        try:
            self.accelerator = Accelerator(
                cpu=self.device.type == "cpu",
                mixed_precision="no" if precision == "fp32" else precision,
                kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
                # Otherwise a variable of its launcher would divide all losses
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
            )
        except ValueError as error:
            raise InputError(f"Accelerate refuses train.precision {precision} here: {error}") from error
        found, wanted = self.accelerator.num_processes, self.group.world_size
        if found != wanted:
            raise InputError(
                f"{wanted} processes were asked for, but Accelerate has {found}, each training alone; set "
                "ACCELERATE_USE_CPU=1 where there is no GPU"
            )

    def wrap(self, model: nn.Module) -> Wrapped:
        self.accelerator.ddp_handler.find_unused_parameters = not model.can_pack
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            module, prepared = self.accelerator.prepare(model, model.build_optimizer(self.config.train))
        # Its wrapper does with the scaler, which it has in fp16 only, what `Mode.step` does
        self.scaler = self.accelerator.scaler or self.scaler
        return module, prepared.optimizer

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        return nullcontext() if is_last else self.accelerator.no_sync(self.module)

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss * self.group.world_size)


class DeepSpeed(ProcessGroupMode):
    """ZeRO shards optimizer state (stage 1), gradients too (2), parameters too (3). The engine runs forward,
    backward and the step; precision is ours. DeepSpeed's own fp16 and bf16 keep low-precision weights, and
    its autocast clips gradients that are still scaled (0.19.8), so neither would do the same job."""

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
        self.deepspeed, self.stage = deepspeed, self.config.deepspeed.stage
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
        optimizer, settings = model.build_optimizer(self.config.train), deepspeed_config(self.config)
        self.engine, optimizer, *_ = self.deepspeed.initialize(
            model=model, optimizer=optimizer, config=settings, dist_init_required=False
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
        skipped = bool(self.optimizer.overflow)
        return torch.tensor(math.inf if skipped else float(self.engine.get_global_grad_norm())), skipped

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
        given = self.group.broadcast(list(weights))
        check_names("weights", trained, given, values)
        for name in given:
            value = values[name]
            if isinstance(value, nn.Parameter):
                with self.whole_parameter(value):
                    if self.group.rank == 0:
                        value.data.copy_(weights[name])
            else:
                value.copy_(self.group.broadcast(weights.get(name)))
        self.optimizer.refresh_fp32_params()

    def saved_values(self) -> dict[str, torch.Tensor]:
        """Return the parameters and buffers of transformers' model that a checkpoint has; where an adapter is
        trained, only what is trained."""
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

    def shards(self) -> list[torch.Tensor]:
        """Return this rank's parts of the flat weights, on which its optimizer steps."""
        zero = self.optimizer
        return zero.fp32_partitioned_groups_flat if self.stage == 3 else zero.single_partition_of_fp32_groups

    def gradients(self) -> Tensors:
        from deepspeed.utils import safe_get_full_grad

        parameters = self.unwrapped_module().named_parameters()
        return {name: safe_get_full_grad(one).cpu() for name, one in parameters if one.requires_grad}


def deepspeed_config(config: Config) -> dict[str, Any]:
    """Return the dictionary for `deepspeed.initialize`, with the user's JSON merged in; raises InputError
    where that sets what follows from our settings."""
    settings, path = config.train, config.deepspeed.config
    ours = {
        # For DeepSpeed's statistics only: the batch plan decides what a rank gets.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": settings.accumulation_steps,
        # Always written: DeepSpeed's default is 1.0, not 0
        "gradient_clipping": settings.max_grad_norm,
        "steps_per_print": None,
        # The optimizer is torch's own, with or without offload, so that all modes make the same step.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    given = read_json(Path(path)) if path else {}
    zero = given.get("zero_optimization", {}) if isinstance(given, dict) else None
    if not isinstance(zero, dict):
        raise InputError(f"{path}: an object is needed, and one as zero_optimization, found {given!r:.80}")
    if own := [key for key in (*given, *zero) if key in (*ours, *REPLACED, "stage")]:
        raise InputError(
            f"{path}: {', '.join(own)} must follow from the settings of train and deepspeed; change "
            "these, and remove it from the file"
        )
    return ours | given | {"zero_optimization": zero | {"stage": config.deepspeed.stage}}


class HorovodGroup(Group):
    """The ranks that horovodrun started."""

    def __init__(self) -> None:
        import horovod.torch as hvd

        self.hvd = hvd
        hvd.init()
        self.rank, self.world_size = hvd.rank(), hvd.size()
        self.local_rank, self.local_world_size = hvd.local_rank(), hvd.local_size()
        end_with_launcher()

    def leave(self, has_failed: bool) -> None:
        if not has_failed:
            self.hvd.shutdown()

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return self.hvd.allgather(rows)

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        return self.hvd.allreduce(values, op=self.hvd.Sum)

    def broadcast(self, value: Any) -> Any:
        # The default name is that of the type; ranks whose values differ in type would wait for each other.
        return self.hvd.broadcast_object(value, root_rank=0, name="value")


class Horovod(Mode):
    """Each rank has the whole model. `DistributedOptimizer` sums the gradients in the backward pass, so the
    loss of the loop needs no factor."""

    launcher = "horovodrun"
    group_class = HorovodGroup
    package = "horovod.torch.mpi_ops"  # compiled for one version of torch
    install = "bash scripts/install_horovod.sh"

    def wrap(self, model: nn.Module) -> Wrapped:
        hvd = self.group.hvd
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            model.build_optimizer(self.config.train),
            named_parameters=[item for item in model.named_parameters() if item[1].requires_grad],
            backward_passes_per_step=self.config.train.accumulation_steps,
            op=hvd.Sum,
        )
        return model, optimizer

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        # The last global batch may have fewer micro-batches, so the count is not left to the optimizer: it
        # starts again at 2 before each micro-batch, which no backward pass uses up, and at 1 before the last,
        # which sends the gradients.
        self.optimizer.set_backward_passes_per_step(1 if is_last else 2)
        yield
        if is_last:
            # Before unscaling and clipping, which need the whole gradients
            self.optimizer.synchronize()

    def step(self, max_norm: float) -> tuple[torch.Tensor, bool]:
        with self.optimizer.skip_synchronize():
            return super().step(max_norm)

    def load_weights(self, weights: Tensors) -> None:
        super().load_weights(self.group.broadcast(weights))

    def load_optimizer_state(self, tensors: Tensors) -> None:
        zero_grad = self.optimizer.zero_grad
        # torch makes a step of no size to get a state, and calls this with an argument it does not know
        self.optimizer.zero_grad = lambda set_to_none: zero_grad()
        with self.optimizer.skip_synchronize():
            super().load_optimizer_state(self.group.broadcast(tensors))
        del self.optimizer.zero_grad
