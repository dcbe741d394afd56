"""DeepSpeed's configuration, derived from ours; a user's own JSON is merged in and may not contradict it.

https://www.deepspeed.ai/docs/config-json/
"""

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from ..config.schema import Config
from ..errors import InputError
from ..runtime import disk

OPTIMIZERS = {"adamw": "AdamW", "adamw_8bit": "AdamW8bit", "sgd": "SGD"}
# Sections that our own settings replace: a key in them that is not checked against ours has no effect, so it
# is refused.
REPLACED = ("optimizer", "scheduler", "fp16", "bf16", "bfloat16", "torch_autocast", "amp")


def import_deepspeed(device: torch.device, local_rank: int) -> Any:
    """Import deepspeed for a device, without the parts that training does not need, and return the module."""
    # Else it takes CUDA wherever there is one
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    # It refuses to start without, even as one process
    os.environ.setdefault("LOCAL_RANK", str(local_rank))
    import deepspeed

    # An all-reduce in shared memory that only inference uses. It would be compiled at the first start.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # It still calls collectives by names that torch 2.13 deprecates.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    return deepspeed


def deepspeed_config(config: Config, world_size: int) -> dict[str, Any]:
    """Return the dictionary for `deepspeed.initialize`; raises InputError where a JSON file contradicts."""
    settings, zero = config.train, config.deepspeed
    ours: dict[str, Any] = {
        # DeepSpeed uses the batch sizes for its statistics only: the batch plan decides what a rank gets. The
        # last global batch, and shards that do not divide evenly, are smaller.
        "train_micro_batch_size_per_gpu": math.ceil(
            settings.batch_size / (world_size * settings.accumulation_steps)
        ),
        "gradient_accumulation_steps": settings.accumulation_steps,
        # Always written: DeepSpeed's default is 1.0, not 0
        "gradient_clipping": settings.max_grad_norm,
        "steps_per_print": None,
        "zero_optimization": {"stage": zero.stage},
        # The optimizer is torch's own, with or without offload, so that all modes make the same step.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if zero.config:
        merge(ours, read_json(zero.config), decided(config, ours), zero.config)
    return ours


def decided(config: Config, ours: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """Return by DeepSpeed's dotted key the value that we give it, and the setting that decides it."""
    settings, zero = config.train, config.deepspeed
    values = {
        "train_batch_size": (settings.batch_size, "train.batch_size"),
        "train_micro_batch_size_per_gpu": (
            ours["train_micro_batch_size_per_gpu"],
            "train.batch_size / (processes * train.accumulation_steps)",
        ),
        "gradient_accumulation_steps": (settings.accumulation_steps, "train.accumulation_steps"),
        "gradient_clipping": (settings.max_grad_norm, "train.max_grad_norm"),
        "zero_optimization.stage": (zero.stage, "deepspeed.stage"),
        "zero_force_ds_cpu_optimizer": (False, "train.optimizer"),
        "optimizer.type": (OPTIMIZERS[settings.optimizer], "train.optimizer"),
        "optimizer.params.lr": (settings.learning_rate, "train.learning_rate"),
        "optimizer.params.weight_decay": (settings.weight_decay, "train.weight_decay"),
    }
    for section, precision in (("fp16", "fp16"), ("bf16", "bf16"), ("bfloat16", "bf16")):
        values[f"{section}.enabled"] = (settings.precision == precision, "train.precision")
    return values


def read_json(path: str) -> dict[str, Any]:
    """Return the mapping in a JSON file; raises InputError where there is none."""
    try:
        settings = disk.read_json(Path(path))
    except OSError as error:
        raise InputError(
            f"deepspeed.config must name a JSON file; {path} cannot be read: {error.strerror}"
        ) from error
    except InputError as error:
        raise InputError(f"deepspeed.config: {error}") from error
    if not isinstance(settings, dict):
        raise InputError(
            f"deepspeed.config: {path} must hold a mapping of keys to values, found {settings!r:.60}"
        )
    return settings


def merge(
    ours: dict[str, Any],
    theirs: dict[str, Any],
    fixed: dict[str, tuple[Any, str]],
    path: str,
    prefix: str = "",
) -> None:
    """Add the keys of `theirs` to `ours`; "auto" leaves ours. Raises InputError at a contradiction."""
    for key, value in theirs.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            deeper = ours if key in REPLACED else ours.setdefault(key, {})
            merge(deeper if isinstance(deeper, dict) else {}, value, fixed, path, f"{name}.")
        elif value == "auto":
            continue
        elif name in fixed:
            wanted, setting = fixed[name]
            if value != wanted:
                raise InputError(
                    f"{path}: {name} is {json.dumps(value)}, but {setting} makes it {json.dumps(wanted)}; "
                    'change the setting, or write "auto" in the file'
                )
        elif name.split(".")[0] in REPLACED:
            raise InputError(
                f"{path}: {name} has no effect here, because optimizer, schedule and precision are "
                "train.optimizer, train.schedule and train.precision in every mode; remove it"
            )
        else:
            ours[key] = value
