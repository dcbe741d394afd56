"""The full, unsharded state of training by parameter name, on the CPU: weights, optimizer, gradients, loss
scale. It has one form, so a run can be resumed in another mode or number of processes."""

from typing import Any

import torch
from torch import nn

Tensors = dict[str, torch.Tensor]


class FullState:
    """Reads and writes the state of a mode whose ranks hold whole tensors.

    Every rank must call each method. What is returned has values on rank 0 only (elsewhere it is empty), and
    what is loaded is passed in on rank 0 only; `gradients` has values on every rank.
    """

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.group = mode.group

    @property
    def module(self) -> nn.Module:
        """The model without the mode's wrapper."""
        return self.mode.unwrapped_module()

    @property
    def has_adapter(self) -> bool:
        """Whether the state of the model is that of its trained weights only."""
        return getattr(self.module, "adapter", None) is not None

    def held(self) -> Tensors:
        """Return the tensors of the state as the mode has them, by the model's own parameter names."""
        tensors = self.module.state_dict(keep_vars=True)
        return {name: value for name, value in tensors.items() if value.requires_grad or not self.has_adapter}

    def weights(self) -> Tensors:
        """Return the weights, by the model's own parameter names."""
        if self.group.rank != 0:
            return {}
        return {name: to_cpu(value) for name, value in self.held().items()}

    def load_weights(self, weights: Tensors) -> None:
        """Load what `weights` returned."""
        frozen = self.module.state_dict() if self.has_adapter else {}
        self.module.load_state_dict(frozen | weights)

    def optimizer(self) -> Tensors:
        """Return the optimizer state; its keys are `parameter/name`, such as `classifier.bias/exp_avg`."""
        tensors = {}
        for parameter_name, parameter in self.module.named_parameters():
            for name, value in self.mode.optimizer.state.get(parameter, {}).items():
                # The step count of bitsandbytes is a number
                whole = full_tensor(value) if torch.is_tensor(value) else torch.tensor(value)
                if self.group.rank == 0:
                    tensors[f"{parameter_name}/{name}"] = to_cpu(whole)
        return tensors

    def load_optimizer(self, tensors: Tensors) -> None:
        """Load what `optimizer` returned."""
        optimizer = self.mode.optimizer
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        ordered = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        by_index: dict[int, Tensors] = {}
        for index, parameter in enumerate(ordered):
            prefix = f"{names[parameter]}/"
            values = {
                key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
            }
            if values:
                by_index[index] = {name: self.place(value, parameter) for name, value in values.items()}
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": by_index, "param_groups": groups})

    def place(self, value: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor:
        """Return a full tensor of the optimizer state as this rank keeps it, a whole number as a number."""
        return value.item() if value.dtype == torch.int64 else value

    def gradients(self) -> Tensors:
        """Return the gradients, unscaled; to be called before the optimizer step."""
        gradients = ((name, parameter.grad) for name, parameter in self.module.named_parameters())
        scale = self.loss_scale()
        return {
            name: (full_tensor(gradient).detach() / scale).cpu()
            for name, gradient in gradients
            if gradient is not None
        }

    def loss_scale(self) -> float:
        """Return the factor on the loss under fp16, else 1."""
        return self.mode.scaler.get_scale() if self.mode.scaler else 1.0

    def scaler(self) -> dict:
        """Return the loss scale and its counters, on every rank; an empty dictionary where there is none."""
        return self.mode.scaler.state_dict() if self.mode.scaler else {}

    def load_scaler(self, state: dict) -> None:
        """Load what `scaler` returned, given on every rank."""
        if self.mode.scaler and state:
            self.mode.scaler.load_state_dict(state)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole of a tensor that may be sharded over the ranks; every rank must call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor on the CPU that later steps do not change."""
    return tensor.detach().to("cpu", copy=True)
