"""Which parameters of a model of transformers are its encoder, its embeddings, its norms; and its last layer.

The names of layers differ from type to type, so modules and their classes decide.
"""

from torch import nn


def encoder_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of the encoder of a model of transformers; all others are of its head. The pooler
    comes after the layers and reads one token of a row, so it is of the head, also where transformers has it
    inside of the encoder."""
    encoder = set(model.base_model.parameters())
    pooler = getattr(model.base_model, "pooler", None)
    if pooler is not None:
        encoder -= set(pooler.parameters())
    return encoder


def embedding_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of the embeddings of a model of transformers: tables of embeddings, and what is
    named after them, such as their norm and their projection. No part of a layer is among them."""
    encoder = model.base_model
    in_layers = set()
    for module in encoder.modules():
        # In transformers each stack of layers is such a list
        if isinstance(module, nn.ModuleList):
            in_layers.update(module.parameters())
    embeddings = set()
    for module in encoder.modules():
        if isinstance(module, nn.Embedding):
            embeddings.update(module.parameters())
    for name, parameter in encoder.named_parameters():
        if "embed" in name:
            embeddings.add(parameter)
    return embeddings - in_layers


def norm_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of layers that normalise. Such a layer is recognised by its class, because many
    types have their own, such as Qwen3RMSNorm; its name may be `ln_1`."""
    parameters = set()
    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            parameters.update(module.parameters(recurse=False))
    return parameters


def last_layer(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return the last linear layer of the head of a model of transformers, after its name."""
    head_layers = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and not name.startswith(model.base_model_prefix):
            head_layers.append((name, module))
    return head_layers[-1]
