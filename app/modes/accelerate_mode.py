"""DDP by way of Hugging Face Accelerate, which is imported when the mode is entered.

https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization
"""

import os
import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from ..errors import InputError
from .mode import DDP, Wrapped

# Other ways to train that its launcher can ask for
REFUSED_WAYS = ("DEEPSPEED", "FSDP", "MEGATRON_LM")


class Accelerate(DDP):
    """DDP by way of `Accelerator.prepare`. `accumulate()` counts micro-batches up to a
    fixed number, and `gather_for_metrics` drops what a sampler repeated. Here the last
    global batch may have fewer micro-batches, and the plan repeats no row. So the loop
    itself says which micro-batch is the last (`no_sync` on the others), and all gathered
    rows are real."""

    def start_library(self) -> None:
        from accelerate import Accelerator, DistributedDataParallelKwargs
        from accelerate.utils import GradientAccumulationPlugin

        for name in REFUSED_WAYS:
            variable = f"ACCELERATE_USE_{name}"
            if os.environ.get(variable, "").lower() == "true":
                raise InputError(
                    f"mode accelerate trains as DDP, found {variable}=true; launch it with --multi_gpu, "
                    "or choose mode fsdp or deepspeed"
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
        if self.accelerator.num_processes != self.group.world_size:
            raise InputError(
                f"{self.group.world_size} processes were asked for, but Accelerate has "
                f"{self.accelerator.num_processes}, each training alone; set "
                "ACCELERATE_USE_CPU=1 where there is no GPU"
            )

    def wrap(self, model: nn.Module) -> Wrapped:
        self.accelerator.ddp_handler.find_unused_parameters = not model.can_pack
        optimizer = model.build_optimizer(self.config.train)
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            module, prepared = self.accelerator.prepare(model, optimizer)
        # Its wrapper does with the scaler, which it has in fp16 only, what `Mode.step` does
        self.scaler = self.accelerator.scaler or self.scaler
        return module, prepared.optimizer

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        if is_last:
            return nullcontext()
        return self.accelerator.no_sync(self.module)

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss * self.group.world_size)
