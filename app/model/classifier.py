"""The classifier: a BERT-family encoder and its head, loaded from a checkpoint or with random weights."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from app.batching.collate import Layout, collate
from app.config.schema import ModelConfig
from app.errors import InputError, nearest
from app.model import attention
from app.model.dropout import use_cheap_masks
from app.model.embedding import keep_gradient_memory
from app.model.last_layer import read_first_tokens_only
from app.model.varlen import has_varlen_kernels

logger = logging.getLogger(__name__)
# Models whose head reads each row's first token, and which count positions from 0 (or, RoBERTa, from pad_id + 1).
PACKABLE = ("bert", "electra", "roberta", "xlm-roberta")
COUNT_FROM_PAD = ("roberta", "xlm-roberta")
HEADS = ("classifier", "pooler", "pre_classifier", "score")
FROM_DATA = ("num_labels", "id2label", "label2id", "problem_type")  # keys that the data decides
# What transformers, torch and safetensors raise for a checkpoint or a setting that is not what it should be.
REFUSALS = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, RuntimeError, AssertionError, AttributeError, ImportError),
    *(SafetensorError, StrictDataclassError),
)


class Classifier(nn.Module):
    """transformers' model for sequence classification, which also takes packed batches.

    `forward` takes what `app.batching.collate.collate` makes and returns logits, (num_rows, num_labels), in the model's precision.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        use_cheap_masks(model)
        keep_gradient_memory(model)
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


def build_model(config: ModelConfig, tokenizer, label_names: list[str], max_length: int) -> Classifier:
    """Return the classifier on the CPU in fp32, with the labels' names in its configuration.

    Weights come from safetensors, or from a PyTorch file read with `weights_only`; never from a pickle. Raises InputError
    for a checkpoint that cannot be loaded, an unknown configuration key, or texts that do not fit the model.
    """
    hub = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
    with quiet_transformers():
        model_config = _configure(config, tokenizer, hub)
        model_config.id2label = dict(enumerate(label_names))
        model_config.label2id = {name: index for index, name in enumerate(label_names)}
        model_config.problem_type = "single_label_classification"
        _check_fit(model_config, len(tokenizer), max_length)
        if config.name is not None:
            return Classifier(_load_weights(config.name, model_config, hub))
        model = _attempt(
            lambda: AutoModelForSequenceClassification.from_config(model_config),
            f"model.config does not make a {config.architecture} classifier",
        )
        return Classifier(model)


def checkpoint_config(name: str | Path, **hub) -> PreTrainedConfig:
    """Return the configuration of a checkpoint, a hub name or a folder; `hub` as `AutoConfig.from_pretrained` takes it.

    What attention function it names is left out: one of the hub would be fetched and run, whatever `trust_remote_code`
    says (https://huggingface.co/docs/transformers/attention_interface).
    """
    config = AutoConfig.from_pretrained(name, **hub)
    config._attn_implementation = None
    return config


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the progress bars and notes of transformers out of what a run says; downloads keep their bar."""
    hook = transformers_logging.set_tqdm_hook(lambda _, args, kwargs: transformers_logging.EmptyTqdm(*args, **kwargs))
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        transformers_logging.set_tqdm_hook(hook)


def _attempt(action: Callable[[], Any], problem: str) -> Any:
    try:
        return action()
    except pickle.UnpicklingError as error:  # its message would advise to load the pickle all the same
        raise InputError(
            f"{problem}: its PyTorch file holds more than tensors, and a pickle could run any code; convert it to safetensors"
        ) from error
    except REFUSALS as error:
        expected = isinstance(error, (OSError, ValueError))
        raise InputError(f"{problem}: {error if expected else repr(error)}") from error


def _cannot_load(name: str) -> str:
    return f"model.name must be a hub name or a folder with a checkpoint; '{name}' could not be loaded"


def _configure(config: ModelConfig, tokenizer, hub: dict):
    """Return the configuration of the checkpoint, or of the architecture with our vocabulary, with what the user sets."""
    special = {}
    if config.name is None:
        if config.architecture not in CONFIG_MAPPING:
            close = nearest(config.architecture, CONFIG_MAPPING)
            raise InputError(f"model.architecture '{config.architecture}' is not a model type of transformers{close}")
        model_config = AutoConfig.for_model(config.architecture)
        special = {"pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)}
        special |= {"bos_token_id": None, "eos_token_id": None}
    else:
        model_config = _attempt(lambda: checkpoint_config(config.name, **hub), _cannot_load(config.name))
    known = model_config.to_dict() | model_config.attribute_map
    for key in config.config:
        if key in FROM_DATA:
            raise InputError(f"model.config: '{key}' follows from the labels of the data and cannot be set")
        if key not in known:
            raise InputError(f"model.config: a {model_config.model_type} model has no key '{key}'{nearest(key, known)}")
    values = {key: value for key, value in special.items() if key in known} | config.config
    if config.dropout is not None:
        values |= {key: config.dropout for key in known if "dropout" in key}

    def override():
        if config.name is None:  # by the constructor, which derives some values from others
            return AutoConfig.for_model(config.architecture, **values)
        for key, value in values.items():
            setattr(model_config, key, value)
        model_config.validate()
        return model_config

    return _attempt(override, f"model.config does not fit a {model_config.model_type} model")


def max_positions(model_config) -> int | None:
    """Return the tokens of the longest row that a model takes, or None where it has no limit."""
    positions = getattr(model_config, "max_position_embeddings", None) or -1  # XLNet says -1: no limit
    if model_config.model_type in COUNT_FROM_PAD:
        positions -= (model_config.pad_token_id or 0) + 1
    return positions if positions > 0 else None


def _check_fit(model_config, vocabulary: int, max_length: int) -> None:
    """Raise InputError where tokens or positions would be outside of the model's embeddings."""
    positions = max_positions(model_config)
    if positions and max_length > positions:
        raise InputError(f"data.max_length must be at most the model's {positions} positions, found {max_length}")
    size = getattr(model_config, "vocab_size", None)
    if size and vocabulary > size:
        raise InputError(
            f"the model has embeddings for {size:,} tokens and the tokenizer's vocabulary has {vocabulary:,}; they must "
            "belong together"
        )


def _load_weights(name: str, model_config, hub: dict) -> nn.Module:
    model, info = _attempt(
        lambda: AutoModelForSequenceClassification.from_pretrained(
            name,
            config=model_config,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **hub,
        ),
        _cannot_load(name),
    )

    def of_body(keys) -> list[str]:
        return sorted(key for key in keys if not key.removeprefix(f"{model.base_model_prefix}.").startswith(HEADS))

    shapes = {key: (tuple(found), tuple(wanted)) for key, found, wanted in info["mismatched_keys"]}
    wrong = of_body(shapes)
    if wrong:
        found, wanted = shapes[wrong[0]]
        raise InputError(
            f"the weights of {name} do not fit model.config: {wrong[0]} has shape {found}, and {wanted} is needed"
            + _and_more(wrong)
        )
    missing = of_body(info["missing_keys"])
    if len(missing) == len(of_body(key for key, _ in model.named_parameters())):
        raise InputError(f"{name} holds no weights of a {model_config.model_type} model: no name of a weight is right")
    if missing:
        logger.warning("%s has no weights for %s%s: they start at random", name, missing[0], _and_more(missing))
    return model


def _and_more(found: list) -> str:
    return f", and {len(found) - 1} more" if found[1:] else ""


def check_padding(model: Classifier, *rows: list[int]) -> None:
    """Raise InputError unless the first row has the same logits alone as in a padded batch; XLNet's, for one, are not."""
    model.eval()
    tokens = [np.array(row, dtype=np.int64) for row in rows]
    with torch.inference_mode():
        try:
            padded = model(**collate(tokens, None, model.layout(packed=False)))[0]
        except ValueError as error:  # a decoder without a padding token
            raise InputError(f"a model that takes padded batches is needed: {error}") from error
        alone = model(torch.from_numpy(tokens[0])[None])[0]
    if not torch.allclose(padded, alone, rtol=1e-3, atol=1e-3):
        raise InputError(
            f"a model that pays no heed to padding is needed, as BERT's kind are; {model.model.config.model_type} does"
        )
