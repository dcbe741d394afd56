"""How large a model its configuration asks for, measured before any memory is allocated."""

import copy
from collections.abc import Mapping
from pathlib import Path

import psutil
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, initialization

from ..errors import InputError, excerpt

MAX_LABELS = 1_000_000
MAX_LAYERS = 1_000
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


def check_size(config: PreTrainedConfig, folder: Path | None = None) -> None:
    """Raise InputError for a model that fits neither this machine's memory nor the weight files in `folder`.
    The model is built on torch's meta device, where tensors have shapes and no values."""
    memory = psutil.virtual_memory().total
    limits = {f"this machine has {_gib(memory)}": memory}
    held = sum(path.stat().st_size for pattern in WEIGHTS for path in folder.glob(pattern)) if folder else 0
    if held:
        # Half a byte a weight is the least that any format has.
        limits[f"the files in {folder} hold {_gib(held)}"] = 2 * BYTES * held + SLACK
    reason, limit = min(limits.items(), key=lambda item: item[1])
    with torch.device("meta"), initialization.no_init_weights():
        model = AutoModelForSequenceClassification.from_config(copy.deepcopy(config), trust_remote_code=False)
    for name, parameter in model.named_parameters():
        if not parameter.numel():
            raise InputError(
                f"the configuration makes {name} of shape {tuple(parameter.shape)}, without any value; "
                "correct its sizes"
            )
    needed = BYTES * sum(parameter.numel() for parameter in model.parameters())
    if needed > limit:
        raise InputError(
            f"the configuration asks for a model of {_gib(needed)}, but {reason}; correct its sizes"
        )


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 1 << 29 else f"{count / 2**20:,.1f} MiB"
