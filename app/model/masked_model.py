"""A model of transformers that predicts masked tokens, and also takes packed batches."""

from operator import attrgetter

import torch
from torch import nn

from .classifier import PackedModel


class MaskedLanguageModel(PackedModel):
    """transformers' model for masked language modelling; only masked tokens go through the head. Its logits
    are (num_masked, vocabulary). The output matrix is that of the embeddings, which is read from there: the
    head has no separate parameter for it, so that weights and optimizer state have it once."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.head_parts = None
        if self.can_pack:
            self.head_parts = self.packing.masked_head
        if self.head_parts is None:
            return
        output = self.head_parts.output
        if self.head_parts.bias == f"{output}.bias":
            model.get_submodule(output).weight = None
        else:
            model.set_submodule(output, nn.Identity())

    def logits(
        self,
        input_ids: torch.Tensor,
        masked: torch.Tensor | None = None,
        first_tokens: torch.Tensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        """Return the logits of the tokens at `masked`, see `MaskedLoader`; None: of first tokens."""
        if self.head_parts is None:
            logits = self.model(input_ids=input_ids, **inputs).logits
            return select_tokens(logits, masked)
        if first_tokens is None:
            hidden = self.model.base_model(input_ids=input_ids, **inputs).last_hidden_state
            states = select_tokens(hidden, masked)
        else:
            tokens = masked
            if tokens is None:
                tokens = first_tokens
            states = self.encode(input_ids, **inputs).squeeze(0).index_select(0, tokens)
        transform = attrgetter(self.head_parts.transform)(self.model)
        bias = attrgetter(self.head_parts.bias)(self.model)
        output_weight = self.model.get_input_embeddings().weight
        return nn.functional.linear(transform(states), output_weight, bias)


def select_tokens(values: torch.Tensor, masked: torch.Tensor | None) -> torch.Tensor:
    """Return the values of padded rows, (num_rows, length, size), at `masked`; None: at first tokens."""
    if masked is None:
        return values[:, 0]
    return values[masked]
