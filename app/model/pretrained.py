"""Models from settings: where a checkpoint is (`model.name`), its configuration, its weights; and back into a
folder. transformers stays quiet, and its errors are the user's."""

import logging
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import constants, errors, hf_hub_download
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from ..batching.collate import collate
from ..config.schema import ModelConfig
from ..config.shipped import E5_SMALL
from ..data.tokens import highest_id
from ..errors import InputError, nearest, shorten
from ..runtime.disk import sync, whole_files
from ..words import _
from .classifier import Classifier, MaskedLanguageModel, PackedModel, max_positions
from .e5_small import local_checkpoint
from .linear_start import add_mean_layer
from .model_parts import last_layer

logger = logging.getLogger(__name__)
HUB = "https://huggingface.co"
REMEDY = (
    "a whole checkpoint of torch is needed: config.json with its model_type, weights that fit it, and a "
    "tokenizer. Leave out sizes in model.config (configs/small_bert.yaml sets some), merge LoRA weights with "
    "peft (merge_and_unload), convert those of TensorFlow with transformers 4"
)
# model.name or model.architecture decide the first key, the data others, and train.precision the last two
FIXED = {"model_type", "num_labels", "id2label", "label2id", "problem_type", "dtype", "torch_dtype"}
# All configurations of transformers have these keys. They change what a model computes, even where all
# weights keep their shapes: a BERT's heads are cut from the same matrices, ALBERT's layers are the same.
ARRANGEMENT = ("num_hidden_layers", "num_attention_heads")
# These parts come after an encoder. A checkpoint without them gets new ones, without a warning.
HEADS = ("classifier", "pooler", "pre_classifier", "score", "cls.", "lm_head", "generator_predictions")
HEADS += ("generator_lm_head", "head.", "decoder.weight", "decoder.bias")
MAX_MISSING = 0.1  # share of an encoder's weights that may be new


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide the progress bars and log messages of transformers; downloads keep their bar."""
    empty = transformers_logging.EmptyTqdm
    hook = transformers_logging.set_tqdm_hook(lambda _, args, kwargs: empty(*args, **kwargs))
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
    except Exception as error:  # noqa: BLE001 - it raises errors of some fifteen types for broken checkpoints
        found = error if isinstance(error, (OSError, ValueError)) else repr(error)
        if isinstance(error, pickle.UnpicklingError):
            # torch's message would advise to load the pickle all the same
            found = "its PyTorch file holds more than tensors, and a pickle could run any code"
        raise InputError(f"{problem}: {found}; {remedy}") from error


def cannot_load(name: str) -> str:
    return _(
        "model.name must be {default}, random, a hub name or a folder with a checkpoint; '{name}' could not "
        "be loaded"
    ).format(default=E5_SMALL, name=name)


def checkpoint_place(settings: ModelConfig, cache_dir: str) -> str:
    """Return the folder of the configured checkpoint, made or fetched, or its name on the hub; of random
    weights their name. Any rank may call it: one works, the others wait. Raises InputError where the
    checkpoint cannot be downloaded, and where the data file of e5-small-zh is missing."""
    name = settings.name
    if settings.has_random_weights or Path(name).is_dir():
        return name
    if name == E5_SMALL:
        return str(local_checkpoint(Path(cache_dir)))
    if constants.ENDPOINT != HUB:
        # Downloads by Xet would leave the mirror for the hub's own storage
        constants.HF_HUB_DISABLE_XET = True
    try:
        hf_hub_download(name, "config.json")
    except errors.HFValidationError as error:
        raise InputError(_("{rule}: there is no such folder").format(rule=cannot_load(name))) from error
    except (OSError, ValueError) as error:
        found = f"from {constants.ENDPOINT}: {' '.join(str(error).split())}"
        raise InputError(
            f"{cannot_load(name)} {found}; without the hub, three ways are left: {E5_SMALL}, which comes "
            "with a package; a folder with a checkpoint, such as `modelscope download` makes; or a mirror, "
            "as in HF_ENDPOINT=https://hf-mirror.com"
        ) from error
    return name


def checkpoint_config(name: str | Path) -> PreTrainedConfig:
    """Return the configuration of a hub name or folder. The attention function that it names is ignored:
    transformers would fetch one from the hub and run it, whatever `trust_remote_code` says
    (https://huggingface.co/docs/transformers/attention_interface)."""
    config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    config._attn_implementation = None
    return config


def encoder_config(settings: ModelConfig, tokenizer, max_length: int) -> PreTrainedConfig:
    """Return the configuration of a checkpoint, or of an architecture, changed as the user sets it. Raises
    InputError for an unknown architecture or key, and for values that do not fit the model or the texts."""
    if settings.has_random_weights:
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
        # Decoders often have none, and padded batches need it
        has_padding = getattr(config, "pad_token_id", None) is not None
        values = {} if has_padding else {"pad_token_id": tokenizer.pad_token_id}
    keys = config.to_dict() | config.attribute_map
    for key in settings.config:
        if key in FIXED or key not in keys:
            close = nearest(key, keys.keys() - FIXED)
            raise InputError(
                f"model.config: a {config.model_type} model has no key '{key}' that can be set{close}; "
                "labels follow from the data, and weights are fp32 (train.precision)"
            )
    values = {key: value for key, value in values.items() if key in keys} | settings.config
    if settings.dropout is not None:
        values |= {key: settings.dropout for key in keys if "dropout" in key}
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


def check_vocabulary(config: PreTrainedConfig, vocabulary: int, where: str = "") -> None:
    """Raise InputError, `where` first, unless the model has embeddings for token ids below `vocabulary`."""
    size = getattr(config, "vocab_size", None)
    if size and vocabulary > size:
        raise InputError(
            f"{where}the model has embeddings for {size:,} tokens and the tokenizer's ids go up to "
            f"{vocabulary - 1:,}; they must belong together"
        )


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
        model, missing = make_model(settings, config, AutoModelForSequenceClassification)
        if config.model_type == "bert" and "bert.pooler.dense.weight" in missing:
            # A new pooler starts as the identity
            nn.init.eye_(model.bert.pooler.dense.weight)
            nn.init.zeros_(model.bert.pooler.dense.bias)
        key, last = last_layer(model)
        is_new = settings.has_random_weights or f"{key}.weight" in missing
        if not is_new and earlier_labels != label_names:
            is_new = True
            nn.init.normal_(last.weight, std=getattr(config, "initializer_range", 0.02))
            if last.bias is not None:
                nn.init.zeros_(last.bias)
            found = f"{settings.name} was trained on other labels ({shorten(', '.join(earlier_labels), 80)})"
            logger.info("%s: its encoder is kept, the head is new.", found)
        if settings.head == "linear":
            add_mean_layer(model)
        if is_new and head_bias is not None and last.bias is not None:
            last.bias.data.copy_(torch.from_numpy(head_bias))
        return Classifier(model)


def build_masked_model(settings: ModelConfig, tokenizer, max_length: int) -> MaskedLanguageModel:
    """Return the model on the CPU in fp32. A checkpoint's head for masked tokens is kept; without one, the
    head starts at random. Raises InputError as `build_model`."""
    with quiet_transformers():
        config = encoder_config(settings, tokenizer, max_length)
        config.tie_word_embeddings = True
        return MaskedLanguageModel(make_model(settings, config, AutoModelForMaskedLM)[0])


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


def load_weights(
    name: str | Path, config: PreTrainedConfig, auto_class: type = AutoModelForSequenceClassification, **hub
) -> tuple[nn.Module, dict]:
    """Return transformers' model of a checkpoint, on the CPU in fp32, and the names of weights that are
    missing or do not fit: `output_loading_info` in
    https://huggingface.co/docs/transformers/main_classes/model. Files are read into memory and not mapped:
    one that is cut short while it is mapped ends the process with SIGBUS. `hub` as `from_pretrained` takes
    it. Code that comes with a checkpoint is never run."""
    hub |= {"ignore_mismatched_sizes": True, "output_loading_info": True, "disable_mmap": True}
    hub["trust_remote_code"] = False
    return auto_class.from_pretrained(name, config=config, dtype=torch.float32, **hub)


def check_weights(name: str, model: nn.Module, info: dict) -> None:
    """Raise InputError for weights of an encoder that have other shapes, that the model does not take, or of
    which many are missing; warn of a few."""
    base = f"{model.base_model_prefix}."

    def of_encoder(keys) -> list[str]:
        return sorted(key for key in map(str, keys) if not key.removeprefix(base).startswith(HEADS))

    shapes = {key: shapes for key, *shapes in info["mismatched_keys"]}
    parts = (base, *(f"{part}." for part, _module in model.base_model.named_children()))
    unused = [key for key in of_encoder(info["unexpected_keys"]) if key.startswith(parts) or ".lora_" in key]
    sizes = {key: parameter.numel() for key, parameter in model.named_parameters()}
    missing, encoder = of_encoder(info["missing_keys"]), of_encoder(sizes)
    first = f", such as {missing[0]}" if missing else ""
    absent = f"no weights for {len(missing):,} of the {len(encoder):,} of its encoder{first}"
    found = ""
    if wrong := of_encoder(shapes):
        saved, needed = map(tuple, shapes[wrong[0]])
        found = f"{wrong[0]} has shape {saved}, and {needed} is needed"
    elif getattr(model, "_hf_peft_config_loaded", False) or unused:
        found = f"weights that it does not have, such as {next(iter(unused), 'those of an adapter')}"
    elif sum(sizes.get(key, 0) for key in missing) > MAX_MISSING * sum(sizes[key] for key in encoder):
        found = absent
    if found:
        kind = f"a {model.config.model_type} model of its config.json and model.config"
        raise InputError(f"the weights of {name} must be those of {kind}, found {found}; {REMEDY}")
    if missing:
        logger.warning("%s has %s: initialised at random", name, absent)


def check_passes(model: PackedModel, *rows: list[int]) -> None:
    """Raise InputError unless the model, on the CPU, takes rows of ids in all its layouts, with the same
    logits when padded, unlike XLNet. Leaves it in evaluation mode, and the generator as it was."""
    tokens = [np.array(row, dtype=np.int64) for row in rows]
    layouts = [model.layout(packed) for packed in ((False, True) if model.can_pack else (False,))]
    # transformers' decoders without a padding token take no batches
    layouts = [layout for layout in layouts if layout.packed or layout.last_except != -1]
    remedy = "its configuration (config.json and model.config) and its tokenizer must fit"
    with torch.random.fork_rng(devices=()), torch.no_grad():
        for layout in layouts:
            # Dropout and the like run in training only
            for is_training in (True, False):
                with explained("the model cannot classify a text", remedy):
                    padded = model.train(is_training)(**collate(tokens, None, layout))[0]
        if model.can_pack:
            return
        alone = model(torch.from_numpy(tokens[0])[None])[0]
    if not torch.allclose(padded, alone, rtol=1e-3, atol=1e-3, equal_nan=True):
        kind = model.model.config.model_type
        raise InputError(f"this {kind} model's logits change with padding; use a BERT-like encoder")


@contextmanager
def saved_by_this_process(model) -> Iterator[None]:
    """Give a context in which this process saves transformers' `model`. Otherwise only rank 0 of torch's
    process group would, and that group may be one of the user's program, in which this process is any
    rank."""
    model.should_save_on_this_rank = lambda is_main_process: is_main_process
    try:
        yield
    finally:
        del model.should_save_on_this_rank


def save_model(
    folder: Path, model, state: dict, tokenizer, before_move: Callable[[], None] = lambda: None
) -> None:
    """Write a transformers checkpoint into `folder`, each file whole or absent. `model` is transformers'
    model for its configuration, `state` its full weights by name. `before_move` is called when all new files
    are complete and on the disk, and those in `folder` are still the old ones."""
    with whole_files(folder / ".model", folder) as aside, quiet_transformers(), saved_by_this_process(model):
        # The names are those that the model has now: older checkpoints name norms otherwise, and transformers
        # would write their names. It empties the dictionary that it is given.
        model.save_pretrained(aside, state_dict=dict(state), save_original_format=False)
        # safetensors lets only the owner read its files
        shutil.copymode(aside / "config.json", aside / "model.safetensors")
        # Where the folder was renamed meanwhile, this is an error; the next line would make a new one
        aside.stat()
        tokenizer.save_pretrained(aside)
        for path in aside.iterdir():
            sync(path)
        before_move()
