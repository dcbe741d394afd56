"""The configuration of a model: a checkpoint's or an architecture's, with the settings of the user; and calls
into transformers that stay quiet, and whose errors are the user's."""

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, BertConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from ..config.schema import ModelConfig
from ..errors import InputError, nearest
from ..words import _

# Keys that the data decides, and that train.precision does
FIXED = ("num_labels", "id2label", "label2id", "problem_type", "dtype", "torch_dtype")
# Code that comes with a checkpoint is never run
NO_CODE = {"trust_remote_code": False}
# How LoRA weights become those of a model
MERGE = "merge them with peft (merge_and_unload), and save the model with save_pretrained"
# In the order in which they are looked for; archives of the first years have Google's own
CONFIG_FILES = ("config.json", "bert_config.json")
BERT_KEYS = {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"}
BERT_KEYS |= {"max_position_embeddings", "type_vocab_size"}
# What transformers, torch and safetensors raise for a broken checkpoint or a wrong setting.
REFUSALS = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, RuntimeError, AssertionError, AttributeError),
    *(ImportError, ArithmeticError, MemoryError, SafetensorError, StrictDataclassError),
)


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


def attempt(action: Callable[[], Any], problem: str) -> Any:
    """Return `action()`; raises InputError, `problem` and the cause, where transformers refuses."""
    try:
        return action()
    except pickle.UnpicklingError as error:
        # Its message would advise to load the pickle all the same
        raise InputError(
            f"{problem}: its PyTorch file holds more than tensors, and a pickle could run any code; convert "
            "it to safetensors"
        ) from error
    except REFUSALS as error:
        expected = isinstance(error, (OSError, ValueError))
        raise InputError(f"{problem}: {error if expected else repr(error)}") from error


def cannot_load(name: str) -> str:
    """Return the start of the message about a checkpoint that cannot be loaded."""
    return _(
        "model.name must be a hub name or a folder with a checkpoint; '{name}' could not be loaded"
    ).format(name=name)


def checkpoint_config(name: str | Path, **hub) -> PreTrainedConfig:
    """Return the configuration of a hub name or folder; `hub` as `AutoConfig.from_pretrained` takes it.

    The attention function that it names is ignored: transformers would fetch one from the hub and run it,
    whatever `trust_remote_code` says (https://huggingface.co/docs/transformers/attention_interface).
    """
    values = without_model_type(Path(name))
    config = BertConfig.from_dict(values) if values else AutoConfig.from_pretrained(name, **hub)
    config._attn_implementation = None
    return config


def without_model_type(folder: Path) -> dict | None:
    """Return the configuration of a BERT in a folder whose file does not say its model_type, else None.
    Raises InputError for a file without it that is not a BERT's."""
    path = next((folder / name for name in CONFIG_FILES if (folder / name).is_file()), None)
    try:
        values = json.loads(path.read_text(encoding="utf-8")) if path else None
    except (OSError, ValueError, RecursionError):
        # It is reported where transformers reads it
        return None
    if not isinstance(values, dict) or "model_type" in values:
        return None
    # RoBERTa has one kind of segment, ALBERT and ELECTRA have another size of embeddings
    if values.keys() >= BERT_KEYS and "embedding_size" not in values and values["type_vocab_size"] != 1:
        return values
    raise InputError(
        f"{path}: a configuration must name its model_type, and this one is not a BERT's; add a line such as "
        '"model_type": "roberta",'
    )


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
        config = attempt(lambda: checkpoint_config(settings.name, **NO_CODE), cannot_load(settings.name))
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
            raise InputError(
                f"model.config: a {config.model_type} model has no key '{key}'{nearest(key, keys)}"
            )
    values = {key: value for key, value in values.items() if key in keys} | settings.config
    if settings.dropout is not None:
        values |= {key: settings.dropout for key in keys if "dropout" in key}

    def with_values() -> PreTrainedConfig:
        # By the constructor, which derives some values from others
        if settings.name is None:
            return AutoConfig.for_model(settings.architecture, **values)
        for key, value in values.items():
            setattr(config, key, value)
        config.validate()
        return config

    return attempt(with_values, f"model.config does not fit a {config.model_type} model")
