"""Whether the weights of a checkpoint are those of the model, and whether the model classifies texts."""

import logging
from collections.abc import Iterable
from copy import deepcopy

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig

from ..batching.collate import StepMasks, collate, keys_of_rows
from ..config.schema import ModelConfig
from ..errors import InputError
from .checkpoint import checkpoint_config
from .classifier import PackedModel
from .model_parts import norm_parameters
from .transformers_errors import REMEDY, cannot_load, explained

logger = logging.getLogger(__name__)

# All configurations of transformers have these keys. They change what a model computes, even where all
# weights keep their shapes: a BERT's heads are cut from the same matrices, ALBERT's layers are the same.
ARRANGEMENT = ("num_hidden_layers", "num_attention_heads")
# These parts come after an encoder. A checkpoint without them gets new ones, without a warning.
HEADS = (
    "classifier",
    "pooler",
    "pre_classifier",
    "score",
    "cls.",
    "lm_head",
    "generator_predictions",
    "generator_lm_head",
    "head.",
    "decoder.weight",
    "decoder.bias",
)
MAX_MISSING = 0.1  # share of an encoder's weights that may be new


def check_vocabulary(config: PreTrainedConfig, vocabulary: int, where: str = "") -> None:
    """Raise InputError, `where` first, unless the model has embeddings for token ids below `vocabulary`."""
    size = getattr(config, "vocab_size", None)
    if size and vocabulary > size:
        raise InputError(
            f"{where}the model has embeddings for {size:,} tokens and the tokenizer's ids go up to "
            f"{vocabulary - 1:,}; they must belong together"
        )


def check_keeps_shapes(settings: ModelConfig, config: PreTrainedConfig, auto_class: type) -> None:
    """Raise InputError unless a checkpoint's weights keep their names and shapes, and their arrangement in
    heads and layers, in a model of `config`, which `settings.config` has changed."""
    with explained(cannot_load(settings.name)):
        saved = checkpoint_config(settings.name)
    unchanged = deepcopy(config)
    for key in settings.config:
        setattr(unchanged, key, getattr(saved, key))
    keys = ", ".join(settings.config)
    rule = f"the weights of {settings.name} must be those of its config.json, found model.config with {keys}"
    remedy = "leave it out, or train random weights: --model.name random"
    for key in ARRANGEMENT:
        number = getattr(unchanged, key, None)
        changed_number = getattr(config, key, None)
        if changed_number != number:
            raise InputError(f"{rule}: {key} is {number} there and would be {changed_number}; {remedy}")
    shapes = parameter_shapes(unchanged, auto_class)
    changed_shapes = parameter_shapes(config, auto_class)
    for name in {**shapes, **changed_shapes}:
        shape = shapes.get(name, "missing")
        changed_shape = changed_shapes.get(name, "missing")
        if changed_shape != shape:
            raise InputError(
                f"{rule}: the shape of {name} is {shape} there and would be {changed_shape}; {remedy}"
            )


def parameter_shapes(config: PreTrainedConfig, auto_class: type) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's parameters by name. It is made without memory for them."""
    problem = f"model.config does not fit a {config.model_type} model"
    with explained(problem, "correct its values"), torch.device("meta"):
        model = auto_class.from_config(config)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def check_weights(name: str, model: nn.Module, info: dict) -> None:
    """Raise InputError for weights of an encoder that have other shapes, that the model does not take, or of
    which many or those of norms are missing; warn of a few. `info` is what `load_weights` returns beside the
    model."""
    base = f"{model.base_model_prefix}."
    sizes = {key: parameter.numel() for key, parameter in model.named_parameters()}
    encoder_keys = keys_of_encoder(sizes, base)
    missing_keys = keys_of_encoder(info["missing_keys"], base)
    first_missing = ""
    if missing_keys:
        first_missing = f", such as {missing_keys[0]}"
    absent = (
        f"no weights for {len(missing_keys):,} of the {len(encoder_keys):,} of its encoder{first_missing}"
    )
    missing_size = sum(sizes.get(key, 0) for key in missing_keys)
    encoder_size = sum(sizes[key] for key in encoder_keys)
    shapes_by_key = {key: (saved, needed) for key, saved, needed in info["mismatched_keys"]}
    mismatched_keys = keys_of_encoder(shapes_by_key, base)
    unused_keys = keys_without_place(info["unexpected_keys"], model)
    missing_norms = keys_of_norms(missing_keys, model)
    rms_key = key_of_rms_norm(model)
    problem = None
    if rms_key is not None:
        problem = f"{rms_key} {getattr(model.config, rms_key)}, and transformers has LayerNorm in this type"
    elif mismatched_keys:
        saved, needed = shapes_by_key[mismatched_keys[0]]
        problem = f"{mismatched_keys[0]} has shape {tuple(saved)}, and {tuple(needed)} is needed"
    elif unused_keys:
        problem = f"weights that it does not have, such as {unused_keys[0]}"
    elif getattr(model, "_hf_peft_config_loaded", False):
        problem = "weights that it does not have, such as those of an adapter"
    elif missing_size > MAX_MISSING * encoder_size:
        problem = absent
    elif missing_norms:
        problem = f"no weights for {missing_norms[0]}, so that it was trained with other norms"
    if problem is not None:
        raise InputError(
            f"the weights of {name} must be those of a {model.config.model_type} model of its config.json "
            f"and model.config, found {problem}; {REMEDY}"
        )
    if missing_keys:
        logger.warning("%s has %s: initialised at random", name, absent)


def keys_of_encoder(keys: Iterable, base: str) -> list[str]:
    """Return the names of weights that are not in a head, sorted; those in an encoder begin with `base`."""
    names = map(str, keys)
    return sorted(name for name in names if not name.removeprefix(base).startswith(HEADS))


def keys_without_place(keys: Iterable, model: nn.Module) -> list[str]:
    """Return the names of weights of an encoder, among those that a model does not have: they begin like its
    own, or are of an adapter."""
    base = f"{model.base_model_prefix}."
    parts = [f"{name}." for name, _module in model.base_model.named_children()]
    beginnings = (base, *parts)
    unused = []
    for key in keys_of_encoder(keys, base):
        if key.startswith(beginnings) or ".lora_" in key:
            unused.append(key)
    return unused


def keys_of_norms(keys: list[str], model: nn.Module) -> list[str]:
    """Return the names of weights that belong to layers which normalise."""
    norms = norm_parameters(model)
    parameters = dict(model.named_parameters())
    return [key for key in keys if parameters.get(key) in norms]


def key_of_rms_norm(model: nn.Module) -> str | None:
    """Return the key of a configuration that asks for RMSNorm where a model has none: the weights may have
    the names of those of LayerNorm. None where there is no such key."""
    for module in model.modules():
        if "rms" in type(module).__name__.lower():
            return None
    for key, value in model.config.to_dict().items():
        if "norm" not in key:
            continue
        is_named = isinstance(value, str) and "rms" in value.lower()
        is_asked = value is True and "rms" in key
        if is_named or is_asked:
            return key
    return None


def check_passes(model: PackedModel, rows: list[list[int]]) -> None:
    """Raise InputError unless the model, on the CPU, takes rows of ids in all its layouts, with the same
    logits when padded, unlike XLNet. Leaves it in evaluation mode, and the generator as it was."""
    tokens = [np.array(row, dtype=np.int64) for row in rows]
    layouts = []
    padded_layout = model.layout(packed=False)
    # transformers' decoders without a padding token take no batches
    if padded_layout.last_except != -1:
        layouts.append(padded_layout)
    if model.can_pack:
        layouts.append(model.layout(packed=True))
    row_keys = keys_of_rows(StepMasks(seed=0, step=0), np.arange(len(tokens)))
    remedy = "its configuration (config.json and model.config) and its tokenizer must fit"
    with torch.random.fork_rng(devices=()), torch.no_grad():
        for layout in layouts:
            # Dropout and the like run in training only
            for is_training in (True, False):
                with explained("the model cannot classify a text", remedy):
                    model.train(is_training)
                    first_logits = model(**collate(tokens, None, layout, row_keys))[0]
        if model.can_pack:
            return
        logits_alone = model(torch.from_numpy(tokens[0])[None])[0]
    if not torch.allclose(first_logits, logits_alone, rtol=1e-3, atol=1e-3, equal_nan=True):
        model_type = model.model.config.model_type
        raise InputError(f"this {model_type} model's logits change with padding; use a BERT-like encoder")
