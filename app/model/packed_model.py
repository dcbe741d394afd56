"""A model of transformers that also takes packed batches, whatever its head is."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..batching.collate import Layout
from . import attention
from .checkpoint_config import attempt
from .dropout import replace_dropout
from .packing import PACKINGS, why_padded

if TYPE_CHECKING:
    from peft import LoraConfig


class PackedModel(nn.Module):
    """transformers' `model`, with faster parts where `can_pack`. `forward` takes the tensors of
    `app.batching.collate.collate` and returns one output for each target, in the model's precision."""

    # peft's configuration, where only an adapter and the head are trained, see app/model/lora.py
    adapter: LoraConfig | None = None

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        replace_dropout(model)
        self.model = model
        config = model.config
        config.return_dict = True
        # Chunks save little memory, and only some numbers of tokens can be cut into them
        for module in model.modules():
            if hasattr(module, "chunk_size_feed_forward"):
                module.chunk_size_feed_forward = 0
        self.why_padded = why_padded(model)
        self.can_pack = not self.why_padded
        self.packing = PACKINGS.get(config.model_type)
        if self.can_pack:
            model.set_attn_implementation(attention.NAME)

    def checkpoint_layers(self) -> None:
        """Let the backward pass compute each layer again from its input, with the same dropout, instead of
        keeping what the layer computed. Raises InputError for a model that cannot do so."""
        model, config = self.model, self.model.config
        # The second name is that of older versions of transformers
        enable = (
            getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        )
        # The cache is for generation only, and would be refused with a warning
        config.use_cache = False
        attempt(
            lambda: enable({"use_reentrant": False}),
            f"train.gradient_checkpointing true does not work with {config.model_type}; leave it out",
        )

    def encode(self, input_ids: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the states of a packed batch's tokens, (1, total_tokens, hidden), or of `read_tokens`."""
        # Another attention function would let tokens attend across rows, without an error.
        assert self.model.config._attn_implementation == attention.NAME
        if self.packing.reads_last:
            inputs["use_cache"] = False
        return self.model.base_model(input_ids=input_ids, **inputs).last_hidden_state

    def has_varlen_kernels(self, device: torch.device) -> bool:
        """Return whether this model can run packed with variable-length attention on a device."""
        config = self.model.config
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return self.can_pack and attention.has_varlen_kernels(device, head_size)

    def layout(self, packed: bool, varlen: bool = False) -> Layout:
        """Return the input layout this model needs; `packed` only where it can run so."""
        assert self.can_pack or not packed, self.why_padded
        config = self.model.config
        takes_types = "token_type_ids" in signature(self.model.forward).parameters
        return Layout(
            packed,
            varlen=varlen,
            pad_id=config.pad_token_id or 0,
            first_position=first_position(config),
            last_except=self.last_except(),
            token_types=takes_types and getattr(config, "type_vocab_size", 2) > 1,
            max_positions=max_positions(config),
        )

    def last_except(self) -> int | None:
        """Return the id that the token which a decoder reads of a row does not have, as in transformers:
        that of padding, -1 where it has none; None for an encoder."""
        if not self.packing or not self.packing.reads_last:
            return None
        pad_id = self.model.config.pad_token_id
        return -1 if pad_id is None else pad_id


def first_position(config: PreTrainedConfig) -> int:
    """Return the position id of a row's first token."""
    packing = PACKINGS.get(config.model_type)
    return (config.pad_token_id or 0) + 1 if packing and packing.from_pad else 0


def max_positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens a row may have, or None where the model has no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    # XLNet: -1, no limit
    if not isinstance(positions, int) or positions < 0:
        return None
    return max(0, positions - first_position(config))
