"""Embeddings and lower layers that are not trained: no gradient, no optimizer state, no backward pass."""

import logging
import re

from torch import nn

from ..errors import InputError

logger = logging.getLogger(__name__)
EMBEDDINGS, ENCODER = "embeddings", "encoder"
# After the last layer of decoders, ModernBERT and DeBERTa-v2
LAST_NORM = re.compile(r"\b(model\.norm|final_norm|encoder\.LayerNorm)\.")


def layer_depth(name: str, num_layers: int) -> int:
    """Return 0 for the embeddings, 1 to `num_layers` for the encoder's layers, one more for the head."""
    layer = re.search(r"\blayers?\.(\d+)\.", name)
    if layer:
        return int(layer.group(1)) + 1
    if LAST_NORM.search(name):
        return num_layers
    return 0 if "embed" in name else num_layers + 1


def freeze(model: nn.Module, lowest: str | int | None, num_layers: int) -> None:
    """Do not train the embeddings of a model, or these and its `lowest` layers, or the whole encoder; None:
    train all.

    A weight that the head shares with the embeddings is frozen too. Raises InputError for more layers than
    the model has, and for a model whose layers cannot be told from the names of its parameters.
    """
    if lowest is None:
        return
    last = int({EMBEDDINGS: 0, ENCODER: num_layers}.get(lowest, lowest))
    if last > num_layers:
        raise InputError(f"model.freeze must be at most the model's {num_layers} layers, found {last}")
    depths = {name: layer_depth(name, num_layers) for name, _ in model.named_parameters()}
    if missing := set(range(last + 1)) - set(depths.values()):
        raise InputError(
            f"model.freeze {lowest} needs a model with parameters named embeddings and layer.N, found none "
            f"of {'the embeddings' if 0 in missing else f'layer {min(missing)}'}; leave it out"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(depths[name] > last)
    logger.info("model.freeze %s: %s parameters are trained.", lowest, trained_parameters(model))


def has_frozen(model: nn.Module) -> bool:
    """Return whether some parameters are not trained."""
    return any(not parameter.requires_grad for parameter in model.parameters())


def trained_parameters(model: nn.Module) -> str:
    """Return how many parameters of how many are trained."""
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return f"{trained:,} of {sum(parameter.numel() for parameter in model.parameters()):,}"
