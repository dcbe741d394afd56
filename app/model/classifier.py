"""The classifier: a BERT-family encoder and its head, as transformers has them, which also takes packed batches."""

from __future__ import annotations

from inspect import signature

import numpy as np
import torch
from torch import nn

from app.batching.collate import Layout, collate
from app.errors import InputError
from app.model import attention
from app.model.dropout import use_cheap_masks
from app.model.embedding import reuse_gradient_memory
from app.model.last_layer import read_first_tokens_only
from app.model.varlen import has_varlen_kernels

# Models whose head reads each row's first token, and which count positions from 0 (or, RoBERTa, from pad_id + 1).
PACKABLE = ("bert", "electra", "roberta", "xlm-roberta")
COUNT_FROM_PAD = ("roberta", "xlm-roberta")


class Classifier(nn.Module):
    """transformers' model for sequence classification, which also takes packed batches.

    `forward` takes what `app.batching.collate.collate` makes and returns logits, (num_rows, num_labels), in the model's precision.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        use_cheap_masks(model)
        reuse_gradient_memory(model)
        self.model = model
        config = model.config
        known = config.model_type in PACKABLE and type(model).__module__.startswith("transformers.")
        self.can_pack = known and not config.is_decoder and config.num_hidden_layers > 0
        if self.can_pack:
            model.set_attn_implementation(attention.NAME)
            read_first_tokens_only(model.base_model.encoder.layer[-1])

    def forward(
        self, input_ids: torch.Tensor, first_tokens: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> torch.Tensor:
        if first_tokens is None:
            return self.model(input_ids=input_ids, **inputs).logits
        # Another attention function would let the tokens of all rows see each other, without an error.
        assert self.model.config._attn_implementation == attention.NAME
        hidden = self.model.base_model(input_ids=input_ids, first_tokens=first_tokens, **inputs).last_hidden_state
        first = hidden[0][:, None]  # (num_rows, 1, hidden): a row of one token each
        if self.model.config.model_type == "bert":
            return self.model.classifier(self.model.dropout(self.model.bert.pooler(first)))
        return self.model.classifier(first)

    def has_varlen_kernels(self, device: torch.device) -> bool:
        """Return whether packed batches can have variable-length attention at full speed on a device."""
        config = self.model.config
        return self.can_pack and has_varlen_kernels(device, config.hidden_size // config.num_attention_heads)

    def layout(self, packed: bool, varlen: bool = False) -> Layout:
        """Return the input layout this model needs; raises InputError where it cannot run packed."""
        config = self.model.config
        if packed and not self.can_pack:
            raise InputError(
                f"train.collate packed works with {', '.join(PACKABLE)} encoders, found {config.model_type}; set it to padded"
            )
        pad_id = config.pad_token_id or 0
        counts_from_pad = config.model_type in COUNT_FROM_PAD
        takes_types = "token_type_ids" in signature(self.model.forward).parameters
        token_types = takes_types and getattr(config, "type_vocab_size", 2) > 1
        first_position = pad_id + 1 if counts_from_pad else 0
        return Layout(
            packed,
            varlen=varlen,
            pad_id=pad_id,
            first_position=first_position,
            token_types=token_types,
            max_positions=max_positions(config),
        )


def max_positions(model_config) -> int | None:
    """Return the tokens of the longest row that a model takes, or None where it has no limit."""
    positions = getattr(model_config, "max_position_embeddings", None) or -1  # XLNet says -1: no limit
    if model_config.model_type in COUNT_FROM_PAD:
        positions -= (model_config.pad_token_id or 0) + 1
    return positions if positions > 0 else None


def check_padding(model: Classifier, *rows: list[int]) -> None:
    """Raise InputError unless the first row has the same logits alone as in a padded batch; XLNet's, for one, are not."""
    model.eval()
    tokens = [np.array(row, dtype=np.int64) for row in rows]
    with torch.inference_mode():
        try:
            padded = model(**collate(tokens, None, model.layout(packed=False)))[0]
        except ValueError as error:  # a decoder without a padding token
            raise InputError(f"the model must take padded batches: {error}") from error
        alone = model(torch.from_numpy(tokens[0])[None])[0]
    if not torch.allclose(padded, alone, rtol=1e-3, atol=1e-3):
        raise InputError(
            f"this {model.model.config.model_type} model's logits change with padding; use a BERT-like encoder"
        )
