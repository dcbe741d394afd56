"""The model that the settings name: an encoder with random weights or those of a checkpoint, and its head."""

import logging

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..config.schema import ModelConfig
from ..data.tokens import highest_id
from ..errors import InputError, nearest, shorten
from .checkpoint import checkpoint_config, load_weights
from .classifier import Classifier, max_positions
from .linear_start import add_mean_layer
from .masked_model import MaskedLanguageModel
from .model_parts import last_layer
from .transformers_errors import cannot_load, explained, quiet_transformers
from .weight_checks import check_keeps_shapes, check_vocabulary, check_weights

logger = logging.getLogger(__name__)
# model.name or model.architecture decide the first key, the data others, and train.precision the last two
FIXED = {"model_type", "num_labels", "id2label", "label2id", "problem_type", "dtype", "torch_dtype"}


def build_model(
    settings: ModelConfig,
    tokenizer,
    label_names: list[str],
    max_length: int,
    problem_type: str | None = None,
    head_bias: np.ndarray | None = None,
) -> Classifier:
    """Return the classifier on the CPU in fp32, with the labels' names and transformers' `problem_type` in
    its configuration. A new head starts with the bias `head_bias`, (num_labels,), where there is one; the
    head of a checkpoint that was trained on the same labels is kept. Weights come from safetensors, or from a
    PyTorch file as tensors only. Raises InputError for a checkpoint, key or length that does not fit."""
    with quiet_transformers():
        config = encoder_config(settings, tokenizer, max_length)
        earlier_labels = [str(name) for _label, name in sorted(config.id2label.items())]
        config.id2label = dict(enumerate(label_names))
        config.label2id = {name: index for index, name in enumerate(label_names)}
        config.problem_type = problem_type
        model, missing_keys = make_model(settings, config, AutoModelForSequenceClassification)
        if config.model_type == "bert" and "bert.pooler.dense.weight" in missing_keys:
            # A new pooler starts as the identity
            nn.init.eye_(model.bert.pooler.dense.weight)
            nn.init.zeros_(model.bert.pooler.dense.bias)
        name, layer = last_layer(model)
        is_new = settings.has_random_weights or f"{name}.weight" in missing_keys
        if not is_new and earlier_labels != label_names:
            is_new = True
            initialise(layer, config)
            logger.info(
                "%s was trained on other labels (%s): its encoder is kept, the head is new.",
                settings.name,
                shorten(", ".join(earlier_labels), 80),
            )
        if settings.head == "linear":
            add_mean_layer(model)
        if is_new and head_bias is not None and layer.bias is not None:
            layer.bias.data.copy_(torch.from_numpy(head_bias))
        classifier = Classifier(model)
        classifier.knows_labels = not is_new
        return classifier


def initialise(layer: nn.Linear, config: PreTrainedConfig) -> None:
    """Give a layer random weights, as transformers does."""
    nn.init.normal_(layer.weight, std=getattr(config, "initializer_range", 0.02))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def build_masked_model(settings: ModelConfig, tokenizer, max_length: int) -> MaskedLanguageModel:
    """Return the model on the CPU in fp32. A checkpoint's head for masked tokens is kept; without one, the
    head starts at random. Raises InputError as `build_model`."""
    with quiet_transformers():
        config = encoder_config(settings, tokenizer, max_length)
        config.tie_word_embeddings = True
        model, _missing_keys = make_model(settings, config, AutoModelForMaskedLM)
        return MaskedLanguageModel(model)


def make_model(settings: ModelConfig, config: PreTrainedConfig, auto_class: type) -> tuple[nn.Module, set]:
    """Return transformers' model on the CPU in fp32, with random weights, or those of a checkpoint and the
    names of which it has none. Raises InputError where there is no such model."""
    if settings.has_random_weights:
        problem = f"model.config does not make a {settings.architecture} model for this data.task"
        with explained(problem, "correct its values"):
            return auto_class.from_config(config), set()
    if settings.config:
        check_keeps_shapes(settings, config, auto_class)
    with explained(cannot_load(settings.name)):
        model, info = load_weights(settings.name, config, auto_class)
    check_weights(settings.name, model, info)
    return model, info["missing_keys"]


def encoder_config(settings: ModelConfig, tokenizer, max_length: int) -> PreTrainedConfig:
    """Return the configuration of a checkpoint, or of an architecture, changed as the user sets it. Raises
    InputError for an unknown architecture or key, and for values that do not fit the model or the texts."""
    if settings.has_random_weights:
        config = architecture_config(settings.architecture)
        defaults = {
            "pad_token_id": tokenizer.pad_token_id,
            "vocab_size": len(tokenizer),
            "bos_token_id": None,
            "eos_token_id": None,
        }
    else:
        with explained(cannot_load(settings.name)):
            config = checkpoint_config(settings.name)
        defaults = {}
        if getattr(config, "pad_token_id", None) is None:
            # Decoders often have none, and padded batches need it
            defaults["pad_token_id"] = tokenizer.pad_token_id
    keys = config.to_dict() | config.attribute_map
    check_keys(settings, config.model_type, keys)
    values = {key: value for key, value in defaults.items() if key in keys}
    values |= settings.config
    if settings.dropout is not None:
        for key in keys:
            if "dropout" in key:
                values[key] = settings.dropout
    with explained(f"model.config does not fit a {config.model_type} model", "correct its values"):
        if settings.has_random_weights:
            # The constructor derives some values from others
            config = AutoConfig.for_model(settings.architecture, **values)
        else:
            for key, value in values.items():
                setattr(config, key, value)
            config.validate()
    positions = max_positions(config)
    if positions is not None and max_length > positions:
        raise InputError(
            f"data.max_length must be at most the model's {positions} positions, found {max_length}"
        )
    check_vocabulary(config, highest_id(tokenizer.backend_tokenizer) + 1)
    return config


def architecture_config(architecture: str) -> PreTrainedConfig:
    """Return transformers' default configuration of a model type; raises InputError for an unknown one."""
    if architecture not in CONFIG_MAPPING:
        hint = nearest(architecture, CONFIG_MAPPING)
        raise InputError(f"model.architecture '{architecture}' is not a model type of transformers{hint}")
    return AutoConfig.for_model(architecture)


def check_keys(settings: ModelConfig, model_type: str, keys: dict) -> None:
    """Raise InputError for a key of model.config that is not among the `keys` of a model's configuration, or
    that other settings decide."""
    for key in settings.config:
        if key in FIXED or key not in keys:
            hint = nearest(key, keys.keys() - FIXED)
            raise InputError(
                f"model.config: a {model_type} model has no key '{key}' that can be set{hint}; "
                "labels follow from the data, and weights are fp32 (train.precision)"
            )
