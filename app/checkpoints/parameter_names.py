"""Parameter names: in our Classifier, and as transformers' model and every file have them."""

from __future__ import annotations

import torch

# Of the names inside our Classifier
PREFIX = "model."


def strip_prefix(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors under the names of transformers' model, as in model.safetensors."""
    return {name.removeprefix(PREFIX): value for name, value in state.items()}


def add_prefix(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors under the names of our Classifier."""
    return {f"{PREFIX}{name}": value for name, value in state.items()}
