"""Memory of a training step: a way to need less of it, and an estimate of how much it needs."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from .packed_model import PackedModel
from .transformers_calls import attempt

# Of a number in fp32
BYTES = 4


def checkpoint_layers(model: PackedModel) -> None:
    """Let the backward pass compute each layer again from its input, with the same dropout, instead of
    keeping what the layer computed. Raises InputError for a model that cannot do so."""
    inner = model.model
    # The second name is that of older versions of transformers
    enable = getattr(inner, "activation_checkpointing_enable", None) or inner.gradient_checkpointing_enable
    # It is kept for generation only, and would be refused with a warning
    inner.config.use_cache = False
    attempt(
        lambda: enable({"use_reentrant": False}),
        f"train.gradient_checkpointing true does not work with {inner.config.model_type}; leave it out",
    )


def kept_bytes(model: PackedModel, inputs: dict[str, Any], autocast: AbstractContextManager) -> int:
    """Return the bytes that a training pass over `inputs` keeps for its backward pass, besides the weights;
    where layers are computed again, as if they were not. Changes nothing."""
    weights = {parameter.untyped_storage().data_ptr(): parameter.numel() for parameter in model.parameters()}
    sizes = set(weights.values())
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        is_copy = tensor.element_size() < BYTES and storage.nbytes() // tensor.element_size() in sizes
        # Neither a weight nor its copy in half precision
        if storage.data_ptr() not in weights and not is_copy:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    again = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
    was_training = model.training
    try:
        for module in again:
            module.gradient_checkpointing = False
        with torch.random.fork_rng(devices=()), saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
            # Held until everything is counted: a freed address would be used again
            outputs = model.train()(**inputs)
        del outputs
    finally:
        model.train(was_training)
        for module in again:
            module.gradient_checkpointing = True
    return sum(kept.values())
