"""The classifier: an encoder and its head, as transformers has them, which also takes packed batches."""

from functools import partial

import numpy as np
import torch
from torch import nn

from ..batching.collate import collate
from ..errors import InputError
from .checkpoint_config import attempt
from .last_layer import return_read_tokens_only
from .packed_model import PackedModel
from .packing import means

UNUSABLE = (
    "the model cannot classify a text; its configuration (config.json and model.config) and its tokenizer "
    "must fit"
)


class Classifier(PackedModel):
    """transformers' model for sequence classification; its outputs are logits, (num_rows, num_labels)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        # The mean of ModernBERT is over all tokens
        self.reads_mean = getattr(model.config, "classifier_pooling", None) == "mean"
        if self.can_pack and not self.reads_mean:
            layers = getattr(model.base_model, "encoder", model.base_model)
            return_read_tokens_only((layers.layer if hasattr(layers, "layer") else layers.layers)[-1])

    def forward(
        self,
        input_ids: torch.Tensor,
        first_tokens: torch.Tensor | None = None,
        last_tokens: torch.Tensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        if first_tokens is None:
            return self.model(input_ids=input_ids, **inputs).logits
        if self.reads_mean:
            states = means(self.encode(input_ids, **inputs)[0], first_tokens)[None]
        else:
            read_tokens = first_tokens if last_tokens is None else last_tokens
            states = self.encode(input_ids, read_tokens=read_tokens, **inputs)
        # (num_rows, 1, hidden): a row of one token each
        return self.packing.head(self.model, states.transpose(0, 1))


def check_passes(model: PackedModel, *rows: list[int]) -> None:
    """Raise InputError unless the model, on the CPU, takes rows of ids in all its layouts, with the same
    logits when padded, unlike XLNet. Leaves it in evaluation mode, and the generator as it was."""
    tokens = [np.array(row, dtype=np.int64) for row in rows]
    # transformers' decoders without a padding token take no batches
    can_pad = model.last_except() != -1
    layouts = [model.layout(packed) for packed in (False, True) if (model.can_pack if packed else can_pad)]
    with torch.random.fork_rng(devices=()), torch.no_grad():
        for layout in layouts:
            # Dropout and the like run in training only
            for is_training in (True, False):
                inputs = collate(tokens, None, layout)
                padded = attempt(partial(model.train(is_training), **inputs), UNUSABLE)[0]
        if not model.can_pack:
            alone = model(torch.from_numpy(tokens[0])[None])[0]
    if not model.can_pack and not torch.allclose(padded, alone, rtol=1e-3, atol=1e-3, equal_nan=True):
        raise InputError(
            f"this {model.model.config.model_type} model's logits change with padding; use a BERT-like "
            "encoder"
        )
