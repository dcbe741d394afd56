"""The classifier: a BERT-family encoder and its head, as transformers has them, which also takes packed batches."""

from __future__ import annotations

from inspect import signature

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig

from app.batching.collate import Layout, collate
from app.errors import InputError
from app.model import attention
from app.model.dropout import replace_dropout
from app.model.embedding import reuse_gradient_memory
from app.model.last_layer import return_first_tokens_only
from app.model.varlen import has_varlen_kernels

# Models whose head reads each row's first token, and which count positions from 0 (or, RoBERTa, from pad_id + 1).
PACKABLE = ("bert", "electra", "roberta", "xlm-roberta")
COUNT_FROM_PAD = ("roberta", "xlm-roberta")


class Classifier(nn.Module):
    """transformers' model for sequence classification, which also takes packed batches.

    `forward` takes the tensors of `app.batching.collate.collate` and returns logits, (num_rows, num_labels), in the model's
    precision.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        replace_dropout(model)
        reuse_gradient_memory(model)
        self.model = model
        config = model.config
        is_known = config.model_type in PACKABLE and type(model).__module__.startswith("transformers.")
        self.can_pack = is_known and not config.is_decoder and config.num_hidden_layers > 0
        if self.can_pack:
            model.set_attn_implementation(attention.NAME)
            return_first_tokens_only(model.base_model.encoder.layer[-1])

    def forward(
        self, input_ids: torch.Tensor, first_tokens: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> torch.Tensor:
        if first_tokens is None:
            return self.model(input_ids=input_ids, **inputs).logits
        # Another attention function would let tokens attend across rows, without an error.
        assert self.model.config._attn_implementation == attention.NAME
        hidden = self.model.base_model(input_ids=input_ids, first_tokens=first_tokens, **inputs).last_hidden_state
        first = hidden[0][:, None]  # (num_rows, 1, hidden): a row of one token each
        if self.model.config.model_type == "bert":
            return self.model.classifier(self.model.dropout(self.model.bert.pooler(first)))
        return self.model.classifier(first)

    def has_varlen_kernels(self, device: torch.device) -> bool:
        """Return whether this model can run packed with variable-length attention on a device."""
        config = self.model.config
        return self.can_pack and has_varlen_kernels(device, config.hidden_size // config.num_attention_heads)

    def layout(self, packed: bool, varlen: bool = False) -> Layout:
        """Return the input layout this model needs; raises InputError where it cannot run packed."""
        config = self.model.config
        if packed and not self.can_pack:
            raise InputError(
                f"train.collate packed works with {', '.join(PACKABLE)} encoders, found {config.model_type}; set it to padded"
            )
        takes_types = "token_type_ids" in signature(self.model.forward).parameters
        return Layout(
            packed,
            varlen=varlen,
            pad_id=config.pad_token_id or 0,
            first_position=first_position(config),
            token_types=takes_types and getattr(config, "type_vocab_size", 2) > 1,
            max_positions=max_positions(config),
        )


def first_position(config: PreTrainedConfig) -> int:
    """Return the position id of a row's first token."""
    return (config.pad_token_id or 0) + 1 if config.model_type in COUNT_FROM_PAD else 0


def max_positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens a row may have, or None where the model has no limit."""
    positions = (getattr(config, "max_position_embeddings", None) or -1) - first_position(config)  # XLNet: -1, no limit
    return positions if positions > 0 else None


def check_padding(model: Classifier, *rows: list[int]) -> None:
    """Raise InputError if the logits of the first row, token ids, change when the rows are padded to a batch, as XLNet's do."""
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
