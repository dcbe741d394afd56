"""What the training loop asks of a mode. Every default here is the behaviour of one process on one device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..config.schema import Config
from ..runtime.devices import choose_device, fastest_precision, has_memory
from ..runtime.group import Group
from ..runtime.precision import Precision
from .full_state import FullState, full_tensor
from .launchers import Launcher

BuildOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


class Mode:
    """One object between the loop and the mode: a context manager that joins and leaves the processes.

    Communication is in `group`, arithmetic in `precision`, what goes to and comes from the disk in
    `full_state`, and how processes are started in `launcher`. The rest, here, is how a mode wraps the model
    and makes a step.
    """

    launcher = Launcher()
    group_class: type[Group] = Group
    full_state_class: type[FullState] = FullState
    # Whether the wrapped model takes packed batches
    accepts_packed = True
    # Whether passes may be recorded as CUDA graphs: nothing but the model's kernels may run in them
    records_passes = False
    # Whether each rank has memory for the whole model in low precision during a step
    caches_casts = True
    # Whether the mode can train weights in float64, as `python -m app verify` does
    has_float64 = True
    evaluation_mode: Callable[[], AbstractContextManager] = torch.inference_mode
    # Whether each rank has the whole state of the optimizer
    has_whole_optimizer = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.group = Group()
        self.precision: Precision
        self.module: nn.Module
        self.optimizer: torch.optim.Optimizer
        self.scaler: torch.amp.GradScaler | None = None
        self.full_state: FullState

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Return what this machine lacks to run the mode, with the remedy, or None."""
        return None

    @classmethod
    def refuses(cls, precision: str, device: torch.device) -> str | None:
        """Return why the mode does not train in a precision on a device, with the remedy, or None."""
        return None

    def __enter__(self) -> Mode:
        self.group = self.group_class()
        self.device = choose_device(self.config.train.device, self.group.local_rank)
        if has_memory(self.device):
            torch.accelerator.set_device_index(self.device)
        self.group.join(self.device, self.config.train.timeout)
        precision = self.config.train.precision
        if precision == "auto" and self.group.rank == 0:
            precision = fastest_precision(self.device)
        train = replace(self.config.train, precision=self.group.broadcast(precision))
        self.config = replace(self.config, train=train)
        return self

    def __exit__(self, *failure: Any) -> None:
        self.group.leave(has_failed=failure[0] is not None)

    def setup(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        """Move the model to the device, wrap it and build its optimizer; every rank calls it."""
        self.precision = Precision(self.config.train.precision, self.device)
        self.full_state = self.full_state_class(self)
        self.scaler = self.new_scaler()
        self.wrap(model.to(self.device), build_optimizer)

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        """Set `module`, the model as the loop calls it, and `optimizer`."""
        self.module = model
        self.optimizer = build_optimizer(model)

    def unwrapped_module(self) -> nn.Module:
        """Return the model without this mode's wrapper."""
        return self.module

    def new_scaler(self) -> torch.amp.GradScaler | None:
        """Return the loss scaler of the configured precision, or None where it needs none."""
        return self.precision.new_scaler()

    def warm_up(self, inputs: dict[str, torch.Tensor]) -> None:
        """Do what the mode does in its first pass only, on inputs that do not count; every rank calls it."""

    def cached_autocast(self) -> AbstractContextManager:
        """Return the context of a step's passes, in which each weight is cast once, not by micro-batch."""
        return self.precision.cached_autocast() if self.caches_casts else nullcontext()

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        """Return the context of forward *and* backward; unless `is_last`, gradients are not synchronised."""
        return nullcontext()

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the model's outputs for inputs on this rank's device, in the precision of the model."""
        with self.precision.autocast():
            return self.module(**inputs)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of `loss`: this rank's sum over rows, divided by the rows of the global batch."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def unscale(self) -> None:
        """Divide the gradients by the loss scale, where there is one."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)

    def clip(self, max_norm: float) -> torch.Tensor | None:
        """Clip the L2 norm of all gradients to `max_norm` (0: only measure); return the norm before, ()."""
        parameters = list(self.module.parameters())
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = full_tensor(nn.utils.get_total_norm(gradients))
        # Not by exactly 1, where no device is waited for to know; the factor is that of clip_grads_with_norm_
        is_below = norm.device.type == "cpu" and bool(max_norm / (norm + 1e-6) >= 1)
        if max_norm and not is_below:
            nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    def update(self, norm: torch.Tensor | None) -> tuple[torch.Tensor | None, bool]:
        """Make the optimizer's step; return the norm of the gradients, and whether the step was skipped."""
        if self.scaler:
            scale = self.scaler.get_scale()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            return norm, self.scaler.get_scale() < scale
        self.optimizer.step()
        return norm, False

    def zero_grad(self) -> None:
        """Free all gradients."""
        self.optimizer.zero_grad()
