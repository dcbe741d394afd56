"""Hugging Face Accelerate: it wraps model and optimizer, and knows precision, clipping and synchronisation itself.

https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import torch
from torch import nn

from app.errors import InputError
from app.runtime.devices import set_threads
from app.strategies.base import StepResult
from app.strategies.ddp import DDP


class Accelerate(DDP):
    """DDP by way of `Accelerator.prepare`.

    `accumulate()` counts micro-batches up to a fixed number, and `gather_for_metrics` drops what a sampler repeated. Here
    the last global batch may have fewer micro-batches, and the plan repeats no row, so the loop says itself which
    micro-batch is the last (`no_sync` on the others), and all gathered rows are real.
    """

    @classmethod
    def missing(cls) -> str | None:
        return None if find_spec("accelerate") else "Accelerate is not installed: pip install accelerate"

    def join(self) -> None:
        super().join()
        from accelerate import Accelerator, DistributedDataParallelKwargs

        # Broadcasting buffers is a collective in the forward pass: a rank that fails there could not do the step again.
        options = DistributedDataParallelKwargs(broadcast_buffers=False)
        precision = {"fp32": "no"}.get(self.config.precision, self.config.precision)
        try:
            self.accelerator = Accelerator(
                cpu=self.device.type == "cpu", mixed_precision=precision, kwargs_handlers=[options]
            )
        except ValueError as error:
            raise InputError(f"Accelerate refuses train.precision {self.config.precision} here: {error}") from error
        set_threads(self.config.threads, self.local_world_size)
        asked = asked_processes()
        if self.accelerator.num_processes != self.world_size or (asked or self.world_size) != self.world_size:
            raise InputError(
                f"{asked or self.world_size} processes were asked for, but {self.accelerator.num_processes} would train alone. Without a "
                "GPU, accelerate launch needs: ACCELERATE_USE_CPU=1 accelerate launch --multi_gpu --num_processes N "
                "--num_machines 1 --mixed_precision no --dynamo_backend no run_accelerate.py; or use torchrun"
            )

    def setup(self, model: nn.Module, build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        model.to(self.device)
        with warnings.catch_warnings():  # as in ddp.py
            warnings.simplefilter("ignore", FutureWarning)
            self.module, self.optimizer = self.accelerator.prepare(model, build_optimizer(model))

    def autocast(self) -> AbstractContextManager:
        return self.accelerator.autocast()

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        return nullcontext() if is_last else self.accelerator.no_sync(self.module)

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss * self.world_size)

    def step(self, max_norm: float) -> StepResult:
        norm = self.accelerator.clip_grad_norm_(self.module.parameters(), max_norm or float("inf"))
        left_out = self.accelerator.scaler is None and self.leaves_out(norm)
        if not left_out:
            self.optimizer.step()
        self.zero_grad()
        return StepResult(norm, left_out or self.accelerator.optimizer_step_was_skipped)

    def plain_module(self) -> nn.Module:
        return self.accelerator.unwrap_model(self.module)


def asked_processes() -> int | None:
    """Return the `--num_processes` of the `accelerate launch` that started this process, where it can be told.

    `accelerate launch --cpu --num_processes 2` starts one process and says nothing, also not in the environment.
    """
    import psutil

    command = " ".join(psutil.Process(os.getppid()).cmdline())
    found = re.search(r"accelerate(?:\S*[./]| )launch\b.*--num_processes[ =](\d+)", command)
    return int(found.group(1)) if found else None
