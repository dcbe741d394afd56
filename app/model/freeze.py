"""`model.freeze`: a part of the model is not trained. It then has no gradient, no optimizer state and no
backward pass."""

from ..errors import InputError
from .classifier import PackedModel
from .model_parts import embedding_parameters, encoder_parameters


def freeze(model: PackedModel, part: str) -> None:
    """Do not train the `embeddings` of a model, or its whole `encoder`. A weight that the head shares with
    the embeddings is frozen too. Raises InputError where nothing would be left to train."""
    if part == "encoder":
        frozen = encoder_parameters(model.model)
    else:
        frozen = embedding_parameters(model.model)
    for parameter in frozen:
        parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        model_type = model.model.config.model_type
        raise InputError(
            f"model.freeze {part} must leave weights to train, found a {model_type} model without a head "
            "after its encoder; leave it out"
        )
