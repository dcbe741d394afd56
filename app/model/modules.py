"""Replacing modules inside a model of transformers."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def replace_modules(
    model: nn.Module, module_class: type[nn.Module], make: Callable[[nn.Module], nn.Module]
) -> None:
    """Replace every child of a model, at any depth, whose class is exactly `module_class`, by
    `make(child)`."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is module_class:
                setattr(module, name, make(child))
