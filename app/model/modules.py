"""Our own modules in the place of torch's, in a model of transformers."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def replace_modules(model: nn.Module, kind: type[nn.Module], make: Callable[[nn.Module], nn.Module]) -> None:
    """Put `make(child)` in the place of every child of a model, at any depth, that is a `kind` and no subclass of it."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is kind:
                setattr(module, name, make(child))
