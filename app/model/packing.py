"""Which types of model run packed, and how: what their heads read of a row, and how they count positions."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..batching.loader import means_of_rows
from ..runtime.precision import at_least_float32


@dataclass(frozen=True)
class Packing:
    """How a type of model runs packed.

    `head` takes the model and the states of the tokens that it reads, (num_rows, 1, hidden), to logits,
    (num_rows, num_labels). `reads_last`: of each row it reads the last token, else the first. `from_pad`:
    positions count from pad_id + 1, as in RoBERTa, else from 0.
    """

    head: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    reads_last: bool = False
    from_pad: bool = False


def _after_pooler(model: nn.Module, states: torch.Tensor) -> torch.Tensor:
    return model.classifier(model.dropout(model.base_model.pooler(states)))


BERT, DECODER = Packing(_after_pooler), Packing(lambda model, states: model.score(states[:, 0]), True)
ROBERTA = Packing(lambda model, states: model.classifier(states), from_pad=True)
PACKINGS = {
    "bert": BERT,
    "ernie": BERT,
    "electra": Packing(ROBERTA.head),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "modernbert": Packing(lambda model, states: model.classifier(model.drop(model.head(states[:, 0])))),
    "llama": DECODER,
    "qwen2": DECODER,
    "qwen3": DECODER,
}


def why_padded(model: nn.Module) -> str:
    """Return why a model of transformers cannot run packed; empty where it can."""
    config: PreTrainedConfig = model.config
    packing = PACKINGS.get(config.model_type)
    if not type(model).__module__.startswith("transformers."):
        return "its code is not that of transformers"
    if packing is None and not getattr(model, "_supports_attention_backend", False):
        return f"{config.model_type} computes attention itself, over rows of one length"
    if packing is None:
        return f"packed batches work with {', '.join(PACKINGS)} models, found {config.model_type}"
    if not config.num_hidden_layers > 0:
        return "it has no layers"
    # A BERT that is a decoder, or a decoder whose tokens attend in both directions
    is_causal = getattr(config, "is_causal", packing.reads_last)
    if getattr(config, "is_decoder", False) or is_causal != packing.reads_last:
        return "its configuration changes which tokens attend to which"
    return ""


def means(states: torch.Tensor, first_tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean state of each row's tokens, (num_rows, hidden), of `states` (total_tokens, hidden)."""
    lengths = torch.diff(first_tokens, append=first_tokens.new_full((1,), len(states)))
    return means_of_rows(at_least_float32(states), lengths).to(states.dtype)
