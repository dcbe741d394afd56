"""The classifier: a BERT-family encoder and its head, loaded from a checkpoint or with random weights."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from app import attention
from app.collate import Layout
from app.config import ModelConfig
from app.errors import InputError, nearest

logger = logging.getLogger(__name__)
# Models whose head reads each row's first token, and which count positions from 0 (or, RoBERTa, from pad_id + 1).
PACKABLE = ("bert", "electra", "roberta", "xlm-roberta")
HEADS = ("classifier", "pooler", "pre_classifier", "score")


class Classifier(nn.Module):
    """transformers' model for sequence classification, which also takes packed batches.

    `forward` takes what `app.collate.collate` makes and returns logits, (num_rows, num_labels), in the model's precision.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.can_pack = model.config.model_type in PACKABLE and type(model).__module__.startswith("transformers.")
        if self.can_pack:
            model.set_attn_implementation(attention.NAME)

    def forward(
        self, input_ids: torch.Tensor, first_tokens: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> torch.Tensor:
        if first_tokens is None:
            return self.model(input_ids=input_ids, **inputs).logits
        hidden = self.model.base_model(input_ids=input_ids, **inputs).last_hidden_state
        first = hidden[0].index_select(0, first_tokens)[:, None]  # (num_rows, 1, hidden): a row of one token each
        if self.model.config.model_type == "bert":
            return self.model.classifier(self.model.dropout(self.model.bert.pooler(first)))
        return self.model.classifier(first)

    def layout(self, packed: bool) -> Layout:
        """Return the input layout this model needs; raises InputError where it cannot run packed."""
        config = self.model.config
        if packed and not self.can_pack:
            raise InputError(
                f"train.collate packed works with {', '.join(PACKABLE)} models, found {config.model_type}; set it to padded"
            )
        pad_id = config.pad_token_id or 0
        counts_from_pad = config.model_type in ("roberta", "xlm-roberta")
        return Layout(packed, pad_id, pad_id + 1 if counts_from_pad else 0, getattr(config, "type_vocab_size", 2) > 1)


def build_model(config: ModelConfig, tokenizer, label_names: list[str], max_length: int) -> Classifier:
    """Return the classifier on the CPU in fp32, with the labels' names in its configuration.

    Weights come from safetensors, or from a PyTorch file read with `weights_only`; never from a pickle. Raises InputError
    for a checkpoint that cannot be loaded, an unknown configuration key, or texts longer than the model's positions.
    """
    labels = {
        "num_labels": len(label_names),
        "id2label": dict(enumerate(label_names)),
        "label2id": {n: i for i, n in enumerate(label_names)},
    }
    hub = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
    if config.name is None:
        if config.architecture not in CONFIG_MAPPING:
            raise InputError(
                f"model.architecture '{config.architecture}' is not a model type of transformers{nearest(config.architecture, CONFIG_MAPPING)}"
            )
        model_config = AutoConfig.for_model(config.architecture, **labels)
        special = {
            "pad_token_id": tokenizer.pad_token_id,
            "vocab_size": len(tokenizer),
            "bos_token_id": None,
            "eos_token_id": None,
        }
        _override(model_config, special)
    else:
        model_config = _load(lambda: AutoConfig.from_pretrained(config.name, **labels, **hub), config.name)
    _override(model_config, config.config)
    if config.dropout is not None:
        _override(model_config, {key: config.dropout for key in model_config.to_dict() if "dropout" in key})
    _check_length(model_config, max_length)
    if config.name is None:
        return Classifier(AutoModelForSequenceClassification.from_config(model_config))
    return Classifier(_load_weights(config, model_config, hub))


def _override(model_config, values: dict[str, Any]) -> None:
    known = model_config.to_dict()
    for key, value in values.items():
        if key not in known and not hasattr(model_config, key):
            raise InputError(f"model.config: a {model_config.model_type} model has no key '{key}'{nearest(key, known)}")
        setattr(model_config, key, value)


def _check_length(model_config, max_length: int) -> None:
    positions = getattr(model_config, "max_position_embeddings", None)
    if positions and model_config.model_type in ("roberta", "xlm-roberta"):
        positions -= (model_config.pad_token_id or 0) + 1
    if positions and max_length > positions:
        raise InputError(f"data.max_length must be at most the model's {positions} positions, found {max_length}")


def _load(load, name: str):
    try:
        return load()
    except (OSError, ValueError) as error:
        raise InputError(
            f"model.name must be a hub name or a folder with a checkpoint; '{name}' could not be loaded: {error}"
        ) from error


def _load_weights(config: ModelConfig, model_config, hub: dict) -> nn.Module:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # what it would say of missing weights is said below, in one line
    try:
        model, info = _load(
            lambda: AutoModelForSequenceClassification.from_pretrained(
                config.name,
                config=model_config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **hub,
            ),
            config.name,
        )
    finally:
        transformers_logging.set_verbosity(verbosity)
    base = model.base_model_prefix
    body_keys = [
        key for key in info["missing_keys"] if not any(key.removeprefix(f"{base}.").startswith(head) for head in HEADS)
    ]
    wrong = [str(key) for key in info["mismatched_keys"] if not any(head in str(key) for head in HEADS)]
    if wrong:
        raise InputError(
            f"the weights of {config.name} do not fit model.config: {wrong[0]}"
            + (f" and {len(wrong) - 1} more" if wrong[1:] else "")
        )
    if body_keys:
        logger.warning(
            "%s has no weights for %s%s: they start at random",
            config.name,
            body_keys[0],
            f" and {len(body_keys) - 1} more" if body_keys[1:] else "",
        )
    return model
