"""What the training loop asks of a mode. Every default here is the behaviour of one process on one device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict

from ..config.schema import Config
from ..runtime.devices import Precision, choose_device, fastest_precision, has_memory
from ..runtime.group import Group
from .launch import Launcher

BuildOptimizer = Callable[[nn.Module], torch.optim.Optimizer]
Tensors = dict[str, torch.Tensor]


class Mode:
    """What the loop asks of a mode: a context manager that joins and leaves the processes.

    A run enters it, and calls `setup`, which wraps the model and builds the optimizer, and `warm_up`; then in
    each step `micro_batch` around `forward` and `backward`, and `unscale`, `clip`, `update`, `zero_grad`. The
    loop writes the learning rate into the groups of `optimizer`. Communication is in `group`, arithmetic in
    `precision`, and how processes are started in `launcher`.
    """

    launcher = Launcher("one")
    group_class: type[Group] = Group
    accepts_packed = True  # whether the wrapped model takes packed batches
    records_passes = False  # as CUDA graphs; nothing but the model's kernels may run in a pass
    caches_casts = True  # whether each rank has memory for the whole model in low precision during a step
    has_float64 = True  # whether it can train weights in float64, as `python -m app verify` does
    state_form = "whole"  # how a training state is cut, which must not change when a run resumes

    def __init__(self, config: Config) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.group = Group()
        self.precision: Precision
        self.module: nn.Module
        self.optimizer: torch.optim.Optimizer
        self.scaler: torch.amp.GradScaler | None = None

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Return what this machine lacks to run the mode, with the remedy, or None."""
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
        self.scaler = self.precision.new_scaler()
        self.wrap(model.to(self.device), build_optimizer)

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        """Set `module`, the model as the loop calls it, and `optimizer`; `scaler` unless it is torch's."""
        self.module = model
        self.optimizer = build_optimizer(model)

    def unwrapped_module(self) -> nn.Module:
        """Return the model without this mode's wrapper."""
        return self.module

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
        """Add the gradients of `loss`: this rank's sum over rows, divided by the rows of the global batch.
        After the last micro-batch of a step, gradients are sums over all ranks: where a library takes their
        mean, the mode undoes that."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def unscale(self) -> None:
        """Divide the gradients by the loss scale, where there is one."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)

    def clip(self, max_norm: float) -> torch.Tensor | None:
        """Clip the L2 norm of all gradients to `max_norm` (0: only measure); return the norm before, (), or
        None where `update` clips and returns it."""
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
        if not self.scaler:
            self.optimizer.step()
            return norm, False
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return norm, self.scaler.get_scale() < scale

    def zero_grad(self) -> None:
        """Free all gradients."""
        self.optimizer.zero_grad()

    # The state of training has one form, whole tensors on the CPU by the parameter names of transformers'
    # model, so that a run can be resumed in another mode or number of processes. Every rank calls what
    # follows. What is returned is whole on rank 0, and what is loaded is given there.

    def inner(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return transformers' model and torch's optimizer, without any wrapper."""
        return self.unwrapped_module().model, getattr(self.optimizer, "optimizer", self.optimizer)

    def weights(self) -> Tensors:
        """Return the weights; where an adapter is trained, only what is trained."""
        model, _ = self.inner()
        options = whole(ignore_frozen_params=self.unwrapped_module().adapter is not None)
        return self.copies(state_dict.get_model_state_dict(model, options=options))

    def load_weights(self, weights: Tensors) -> None:
        """Load what `weights` returned; what is not trained may be missing, and stays as it is."""
        model, _ = self.inner()
        options = from_rank_0(strict=all(parameter.requires_grad for parameter in model.parameters()))
        # It changes the dictionary that it gets
        state_dict.set_model_state_dict(model, dict(weights), options=options)

    def optimizer_state(self) -> Tensors:
        """Return the optimizer state; its keys are `parameter/name`, such as `classifier.bias/exp_avg`."""
        model, optimizer = self.inner()
        if not optimizer.state:
            # torch would make a step to get one
            return {}
        state = state_dict.get_optimizer_state_dict(model, optimizer, options=whole()).get("state", {})
        return self.copies(
            {
                f"{parameter}/{name}": value
                for parameter, values in state.items()
                for name, value in values.items()
            }
        )

    def load_optimizer_state(self, tensors: Tensors) -> None:
        """Load what `optimizer_state` returned."""
        if not self.group.broadcast(bool(tensors)):
            return
        model, optimizer = self.inner()
        names = {parameter: name for name, parameter in model.named_parameters()}
        groups = [
            group | {"params": [names[parameter] for parameter in group["params"]]}
            for group in optimizer.param_groups
        ]
        state: dict[str, dict] = defaultdict(dict)
        for key, value in tensors.items():
            parameter, _, name = key.partition("/")
            state[parameter][name] = value
        given = {"state": dict(state), "param_groups": groups} if tensors else {}
        state_dict.set_optimizer_state_dict(model, optimizer, given, options=from_rank_0())

    def gradients(self) -> Tensors:
        """Return the gradients, unscaled, on every rank; to be called before the optimizer step."""
        scale = self.scaler.get_scale() if self.scaler else 1.0
        return {
            name: (full_tensor(parameter.grad).detach() / scale).cpu()
            for name, parameter in self.unwrapped_module().named_parameters()
            if parameter.grad is not None
        }

    def copies(self, tensors: Tensors) -> Tensors:
        """Return tensors on the CPU that later steps do not change: there torch gives the parameters."""
        is_copied = has_memory(self.device)
        return {name: value if is_copied else value.clone() for name, value in tensors.items()}


def whole(**options: bool) -> state_dict.StateDictOptions:
    return state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True, **options)


def from_rank_0(**options: bool) -> state_dict.StateDictOptions:
    is_several = dist.is_initialized()
    return state_dict.StateDictOptions(full_state_dict=True, broadcast_from_rank0=is_several, **options)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole of a tensor that may be sharded over the ranks; every rank must call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
