"""Classifiers from settings and checkpoints, and back into a checkpoint folder."""

import logging
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, PreTrainedConfig

from ..config.schema import ModelConfig
from ..data.long_texts import highest_id
from ..errors import InputError, shorten
from ..runtime.disk import whole_files
from .classifier import Classifier, max_positions
from .linear_start import add_mean_layer, last_layer
from .source import NO_CODE, REMEDY, cannot_load, encoder_config, explained, quiet_transformers

logger = logging.getLogger(__name__)
# A checkpoint without them gets new ones, without a warning
HEADS = ("classifier", "pooler", "pre_classifier", "score")
MAX_MISSING = 0.1  # share of an encoder's weights, or of their values, that may be new


def build_model(
    settings: ModelConfig,
    tokenizer,
    label_names: list[str],
    max_length: int,
    problem_type: str | None = None,
    head_bias: np.ndarray | None = None,
) -> Classifier:
    """Return the classifier on the CPU in fp32, with the labels' names and transformers' `problem_type` in
    its configuration.

    A new head starts with the bias `head_bias`, (num_labels,), where there is one; the head of a checkpoint
    that was trained on the same labels is kept as it is. Weights come from safetensors, or from a PyTorch
    file read with `weights_only`, which runs no code of the file. Raises InputError for a checkpoint that
    cannot be loaded, an unknown configuration key, or texts that do not fit the model.
    """
    with quiet_transformers():
        config = encoder_config(settings, tokenizer)
        earlier_labels = [str(name) for _label, name in sorted(config.id2label.items())]
        config.id2label = dict(enumerate(label_names))
        config.label2id = {name: index for index, name in enumerate(label_names)}
        config.problem_type = problem_type
        check_fit(config, tokenizer, max_length)
        model, info = make_model(settings, config, AutoModelForSequenceClassification, HEADS)
        is_kept = False
        if settings.name is not None:
            missing = info["missing_keys"]
            if config.model_type == "bert" and "bert.pooler.dense.weight" in missing:
                # The identity
                nn.init.eye_(model.bert.pooler.dense.weight)
                nn.init.zeros_(model.bert.pooler.dense.bias)
            key, last = last_layer(model)
            has_head = f"{key}.weight" not in missing
            is_kept = has_head and earlier_labels == label_names
            if has_head and not is_kept:
                nn.init.normal_(last.weight, std=getattr(config, "initializer_range", 0.02))
                if last.bias is not None:
                    nn.init.zeros_(last.bias)
                logger.info(
                    "%s was trained on other labels (%s): its encoder is kept, the head is new.",
                    *(settings.name, shorten(", ".join(earlier_labels), 80)),
                )
        if settings.head == "linear":
            add_mean_layer(model)
        if head_bias is not None and not is_kept:
            _key, last = last_layer(model)
            if last.bias is not None:
                last.bias.data.copy_(torch.from_numpy(head_bias))
        return Classifier(model)


def check_fit(config: PreTrainedConfig, tokenizer, max_length: int) -> None:
    """Raise InputError where ids of the tokenizer, or positions of its texts, are outside the embeddings."""
    positions = max_positions(config)
    if positions is not None and max_length > positions:
        raise InputError(
            f"data.max_length must be at most the model's {positions} positions, found {max_length}"
        )
    check_vocabulary(config, highest_id(tokenizer.backend_tokenizer) + 1)


def check_vocabulary(config: PreTrainedConfig, vocabulary: int, where: str = "") -> None:
    """Raise InputError, `where` first, unless the model has embeddings for token ids below `vocabulary`."""
    size = getattr(config, "vocab_size", None)
    if size and vocabulary > size:
        raise InputError(
            f"{where}the model has embeddings for {size:,} tokens and the tokenizer's ids go up to "
            f"{vocabulary - 1:,}; they must belong together"
        )


def make_model(
    settings: ModelConfig, config: PreTrainedConfig, auto_class: type, heads: tuple[str, ...]
) -> tuple[nn.Module, dict]:
    """Return transformers' model on the CPU in fp32, with random weights, or those of a checkpoint and what
    `load_weights` says of them; `heads` may be missing there. Raises InputError where there is none."""
    if settings.name is None:
        kind = "classifier" if auto_class is AutoModelForSequenceClassification else "masked language model"
        with explained(f"model.config does not make a {settings.architecture} {kind}", "correct its values"):
            return auto_class.from_config(config), {}
    with explained(cannot_load(settings.name)):
        model, info = load_weights(settings.name, config, auto_class, **NO_CODE)
    check_weights(settings.name, model, info, heads, settings.config)
    return model, info


def load_weights(
    name: str | Path, config: PreTrainedConfig, auto_class: type = AutoModelForSequenceClassification, **hub
) -> tuple[nn.Module, dict]:
    """Return transformers' model of a checkpoint, on the CPU in fp32, and the names of weights that miss or
    do not fit: `output_loading_info` in https://huggingface.co/docs/transformers/main_classes/model.

    Files are read into memory and not mapped: one that is cut short while it is mapped ends the process with
    SIGBUS. `hub` as `from_pretrained` takes it.
    """
    more = {"ignore_mismatched_sizes": True, "output_loading_info": True, "disable_mmap": True}
    return auto_class.from_pretrained(name, config=config, dtype=torch.float32, **more, **hub)


def check_weights(
    name: str,
    model: nn.Module,
    info: dict,
    heads: tuple[str, ...] = HEADS,
    changed: Collection[str] = (),
) -> None:
    """Raise InputError for weights of an encoder that have other shapes, that the model does not take, or of
    which many are missing; warn of a few. `changed` are the keys of the configuration that the user set."""
    base = f"{model.base_model_prefix}."

    def of_encoder(keys) -> list[str]:
        return sorted(key for key in map(str, keys) if not key.removeprefix(base).startswith(heads))

    # Layers may be left out, or added, on purpose
    is_strict = {"num_hidden_layers", model.config.attribute_map.get("num_hidden_layers")}.isdisjoint(changed)
    shapes = {key: shapes for key, *shapes in info["mismatched_keys"]}
    parts = (base, *(f"{part}." for part, _module in model.base_model.named_children()))
    unused = [key for key in of_encoder(info["unexpected_keys"]) if key.startswith(parts) or ".lora_" in key]
    sizes = {key: parameter.numel() for key, parameter in model.named_parameters()}
    missing, encoder = of_encoder(info["missing_keys"]), of_encoder(sizes)
    values = sum(sizes.get(key, 0) for key in missing) / sum(sizes[key] for key in encoder)
    share = max(values, len(missing) / len(encoder))
    absent = f"no weights for {len(missing):,} of the {len(encoder):,} of its encoder" if missing else ""
    found = ""
    if wrong := of_encoder(shapes):
        found = wrong_shape(wrong[0], *shapes[wrong[0]])
    elif getattr(model, "_hf_peft_config_loaded", False) or unused and is_strict:
        found = f"weights that it does not have, such as {next(iter(unused), 'those of an adapter')}"
    elif share == 1 or is_strict and share > MAX_MISSING:
        found = f"{absent}, such as {missing[0]}"
    if found:
        kind = f"a {model.config.model_type} model of its config.json"
        raise InputError(f"the weights of {name} must be those of {kind}, found {found}; {REMEDY}")
    if missing:
        logger.warning("%s has %s, such as %s: initialised at random", name, absent, missing[0])


def wrong_shape(name: str, saved: Sequence[int], needed: Sequence[int]) -> str:
    """Return what is wrong with the shape of a weight."""
    return f"{name} has shape {tuple(saved)}, and {tuple(needed)} is needed"


def save_model(folder: Path, model, state: dict, tokenizer) -> None:
    """Write a transformers checkpoint into `folder`, each file whole or absent. `model` is transformers'
    model for its configuration, `state` its full weights by name."""
    with whole_files(folder / ".model", folder) as aside, quiet_transformers():
        # Under the names the model has now: older checkpoints name norms otherwise, and transformers would
        # write it so. It empties the dictionary that it is given.
        model.save_pretrained(aside, state_dict=dict(state), save_original_format=False)
        # Which safetensors lets only its owner read
        shutil.copymode(aside / "config.json", aside / "model.safetensors")
        # Not a new folder in the place of one that was renamed meanwhile
        aside.stat()
        tokenizer.save_pretrained(aside)
