"""The encoder's configuration: a checkpoint's or an architecture's, with the settings of the user."""

import json
from pathlib import Path

from transformers import AutoConfig, BertConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..config.schema import ModelConfig
from ..errors import InputError, nearest
from ..words import _
from .packed_model import max_positions
from .size import check_counts
from .transformers_calls import attempt

# Keys that the data decides
FROM_DATA = ("num_labels", "id2label", "label2id", "problem_type")
DTYPES = ("dtype", "torch_dtype")


def cannot_load(name: str) -> str:
    """Return the start of the message about a checkpoint that cannot be loaded."""
    return _(
        "model.name must be a hub name or a folder with a checkpoint; '{name}' could not be loaded"
    ).format(name=name)


# Code that comes with a checkpoint is never run
NO_CODE = {"trust_remote_code": False}
# How LoRA weights become those of a model
MERGE = "merge them with peft (merge_and_unload), and save the model with save_pretrained"
# In the order in which they are looked for; archives of the first years have Google's own
CONFIG_FILES = ("config.json", "bert_config.json")
BERT_KEYS = {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"}
BERT_KEYS |= {"max_position_embeddings", "type_vocab_size"}


def checkpoint_config(name: str | Path, **hub) -> PreTrainedConfig:
    """Return the configuration of a hub name or folder; `hub` as `AutoConfig.from_pretrained` takes it.

    The attention function that it names is ignored: transformers would fetch one from the hub and run it,
    whatever `trust_remote_code` says (https://huggingface.co/docs/transformers/attention_interface). Raises
    InputError for counts that a list would be made of, and that no model has.
    """
    values = without_model_type(Path(name))
    check_counts(values or PreTrainedConfig.get_config_dict(name, **hub)[0])
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
    from_tokenizer = {}
    if settings.name is None:
        if settings.architecture not in CONFIG_MAPPING:
            close = nearest(settings.architecture, CONFIG_MAPPING)
            raise InputError(
                f"model.architecture '{settings.architecture}' is not a model type of transformers{close}"
            )
        config = AutoConfig.for_model(settings.architecture)
        from_tokenizer = {"pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)}
        from_tokenizer |= {"bos_token_id": None, "eos_token_id": None}
    else:
        config = attempt(lambda: checkpoint_config(settings.name, **NO_CODE), cannot_load(settings.name))
        if getattr(config, "pad_token_id", None) is None and tokenizer.pad_token_id is not None:
            # Of decoders; padded batches need it
            config.pad_token_id = tokenizer.pad_token_id
    keys = config.to_dict() | config.attribute_map
    _check_keys(settings.config, keys, config.model_type)
    check_counts(settings.config)
    values = {key: value for key, value in from_tokenizer.items() if key in keys} | settings.config
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


def _check_keys(values: dict, keys: dict, model_type: str) -> None:
    for key in values:
        if key in FROM_DATA:
            raise InputError(f"model.config: '{key}' follows from the labels of the data and cannot be set")
        if key in DTYPES:
            raise InputError(
                f"model.config: '{key}' cannot be set, weights are fp32; set train.precision instead"
            )
        if key not in keys:
            raise InputError(f"model.config: a {model_type} model has no key '{key}'{nearest(key, keys)}")


def check_fit(config: PreTrainedConfig, vocabulary: int, max_length: int) -> None:
    """Raise InputError where token ids below `vocabulary`, or positions, are outside the embeddings."""
    positions = max_positions(config)
    if positions is not None and max_length > positions:
        raise InputError(
            f"data.max_length must be at most the model's {positions} positions, found {max_length}"
        )
    check_vocabulary(config, vocabulary)


def check_vocabulary(config: PreTrainedConfig, vocabulary: int, where: str = "") -> None:
    """Raise InputError, `where` first, unless the model has embeddings for token ids below `vocabulary`."""
    size = getattr(config, "vocab_size", None)
    if size and vocabulary > size:
        raise InputError(
            f"{where}the model has embeddings for {size:,} tokens and the tokenizer's ids go up to "
            f"{vocabulary - 1:,}; they must belong together"
        )
