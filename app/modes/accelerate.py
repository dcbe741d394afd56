"""Hugging Face Accelerate: it wraps model and optimizer, and handles precision and synchronisation itself.

https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization
"""

from __future__ import annotations

import os
import re
import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import torch
from torch import nn

from ..errors import InputError
from .ddp import DDP
from .mode import BuildOptimizer


class Accelerate(DDP):
    """DDP by way of `Accelerator.prepare`.

    `accumulate()` counts micro-batches up to a fixed number, and `gather_for_metrics` drops what a sampler
    repeated. Here the last global batch may have fewer micro-batches, and the plan repeats no row. So the
    loop itself says which micro-batch is the last (`no_sync` on the others), and all gathered rows are real.
    """

    @classmethod
    def unavailable_reason(cls) -> str | None:
        return None if find_spec("accelerate") else "Accelerate is not installed: pip install accelerate"

    def __enter__(self) -> Accelerate:
        super().__enter__()
        import psutil
        from accelerate import Accelerator, DistributedDataParallelKwargs

        precision = self.config.train.precision
        try:
            self.accelerator = Accelerator(
                cpu=self.device.type == "cpu",
                mixed_precision="no" if precision == "fp32" else precision,
                kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
            )
        except ValueError as error:
            raise InputError(f"Accelerate refuses train.precision {precision} here: {error}") from error
        # `accelerate launch --cpu --num_processes 2` starts one process, without a warning or a trace
        command = " ".join(psutil.Process(os.getppid()).cmdline())
        asked = re.search(r"accelerate(?:\S*[./]| )launch\b.*--num_processes[ =](\d+)", command)
        requested = int(asked[1]) if asked else self.group.world_size
        if not requested == self.group.world_size == self.accelerator.num_processes:
            raise InputError(
                f"{requested} processes were asked for, but {self.accelerator.num_processes} would train "
                "alone. Without a GPU, accelerate launch needs: ACCELERATE_USE_CPU=1 accelerate launch "
                "--multi_gpu --num_processes N --num_machines 1 --mixed_precision no --dynamo_backend no "
                "run_accelerate.py; or use torchrun"
            )
        return self

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        # As in ddp.py
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.module, self.optimizer = self.accelerator.prepare(model, build_optimizer(model))
        self.scaler = self.accelerator.scaler

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        return nullcontext() if is_last else self.accelerator.no_sync(self.module)

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss * self.group.world_size)

    def unscale(self) -> None:
        self.accelerator.unscale_gradients()

    def unwrapped_module(self) -> nn.Module:
        return self.accelerator.unwrap_model(self.module)

    def update(self, norm: torch.Tensor) -> tuple[torch.Tensor, bool]:
        self.optimizer.step()
        return norm, self.accelerator.optimizer_step_was_skipped
