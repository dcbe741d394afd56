"""How large a model its configuration asks for, measured before any memory is allocated."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, initialization

from ..errors import InputError, excerpt

MAX_LABELS = 1_000_000
MAX_LAYERS = 10_000
# A thousand layers and more; each costs time and memory besides its values
MAX_TENSORS = 20_000
# Weights are fp32
BYTES = 4
# Bytes of new weights that a checkpoint's files need not hold: a head, a pooler
SLACK = 256 << 20
WEIGHTS = ("*.safetensors", "*.bin")


def check_counts(values: Mapping) -> None:
    """Raise InputError for numbers of labels or layers of which a configuration would make endless lists."""
    for key, value in values.items():
        most = MAX_LABELS if key == "num_labels" else MAX_LAYERS if "layer" in str(key) else None
        if most and isinstance(value, int | float) and not value <= most:
            raise InputError(
                f"{key} must be at most {most:,}, found {excerpt(value)}; correct the model's configuration"
            )


def check_size(config: PreTrainedConfig, folder: Path | None = None, trust_remote_code: bool = False) -> None:
    """Raise InputError for a model that fits neither this machine's memory nor the weight files in `folder`.
    The model is built on torch's meta device, where tensors have shapes and no values."""
    memory = psutil.virtual_memory().total
    limits = {f"this machine has {_gib(memory)}": memory}
    held = sum(path.stat().st_size for pattern in WEIGHTS for path in folder.glob(pattern)) if folder else 0
    if held:
        # Half a byte a weight is the least that any format has.
        limits[f"the files in {folder} hold {_gib(held)}"] = 2 * BYTES * held + SLACK
    reason, limit = min(limits.items(), key=lambda item: item[1])
    with _limited(limit, reason), torch.device("meta"), initialization.no_init_weights():
        AutoModelForSequenceClassification.from_config(
            copy.deepcopy(config), trust_remote_code=trust_remote_code
        )


@contextmanager
def _limited(limit: int, reason: str) -> Iterator[None]:
    """Raise InputError as soon as parameters of modules made inside need more than `limit` bytes."""
    bytes_needed = tensors = 0

    def count(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        nonlocal bytes_needed, tensors
        if parameter is None:
            return
        if not parameter.numel():
            raise InputError(
                f"the configuration makes {type(module).__name__}.{name} of shape {tuple(parameter.shape)}, "
                "without any value; correct its sizes"
            )
        bytes_needed += BYTES * parameter.numel()
        tensors += 1
        if bytes_needed > limit or tensors > MAX_TENSORS:
            rule = reason if bytes_needed > limit else f"a model has at most {MAX_TENSORS:,}"
            raise InputError(
                f"the configuration asks for a model of at least {_gib(bytes_needed)} in {tensors:,} tensors "
                f"of weights, but {rule}; correct its sizes"
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 1 << 29 else f"{count / 2**20:,.1f} MiB"
