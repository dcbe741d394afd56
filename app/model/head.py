"""The last layer of the head of a model of transformers, and what it reads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def last_layer(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return the name of the last layer of the head of a model, and the layer."""
    linear = [(key, module) for key, module in model.named_modules() if isinstance(module, nn.Linear)]
    return next(
        (key, layer) for key, layer in reversed(linear) if not key.startswith(model.base_model_prefix)
    )


@contextmanager
def head_inputs(last: nn.Linear) -> Iterator[list[torch.Tensor]]:
    """Yield a list that gets what the last layer reads in each pass, (num_rows, size) float32 on the CPU."""
    states: list[torch.Tensor] = []

    def keep(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        states.append(inputs[0].detach().flatten(0, -2).float().cpu())

    hook = last.register_forward_pre_hook(keep)
    try:
        yield states
    finally:
        hook.remove()
