"""LoRA by peft: beside each frozen matrix of the encoder a small one of two trained factors; the head is
trained in full. https://huggingface.co/docs/peft/package_reference/lora
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..errors import InputError
from ..runtime.disk import whole_files
from .classifier import PackedModel
from .dropout import replace_dropout
from .freezing import trained_parameters

if TYPE_CHECKING:
    from peft import LoraConfig

logger = logging.getLogger(__name__)
# In the run folder, as peft reads and writes it
FOLDER, WEIGHTS, CONFIG = "adapter", "adapter_model.safetensors", "adapter_config.json"
# Before each name in peft's file; ours have the name of the adapter inside
PREFIX, NAME = "base_model.model.", "default"
PROBLEM = "LoRA needs peft: pip install -r requirements/lora.txt"


def add_lora(model: PackedModel, rank: int | None) -> None:
    """Freeze a model but for its head, and add trained factors to the linear layers of the encoder; without a
    rank nothing is done. Raises InputError where peft is missing."""
    if not rank:
        return
    try:
        from peft import inject_adapter_in_model
        from peft.tuners.lora import LoraLayer
    except ImportError as error:
        raise InputError(f"{PROBLEM} ({error})") from error
    config, heads = peft_config(model.model, rank)
    inject_adapter_in_model(config, model.model, NAME)
    # For peft's file only: it would keep the untrained head as well
    config.modules_to_save = heads
    # Not a set, so that equal runs write equal files
    config.target_modules = sorted(config.target_modules)
    for head in heads:
        model.model.get_submodule(head).requires_grad_(True)
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            # Autocast casts what has to be cast
            layer.cast_input_dtype_enabled = False
    replace_dropout(model)
    model.adapter = config
    logger.info(
        "model.lora_rank %d: %s parameters are trained, in %s and the head.",
        *(rank, trained_parameters(model), ", ".join(config.target_modules)),
    )


def peft_config(model: nn.Module, rank: int) -> tuple[LoraConfig, list[str]]:
    """Return peft's configuration for transformers' `model`, and the modules of its head."""
    from peft import LoraConfig

    encoder, base = model.base_model_prefix, model.name_or_path
    heads = [name for name, child in model.named_children() if name != encoder and [*child.parameters()]]
    if getattr(model.base_model, "pooler", None) is not None:
        heads.append(f"{encoder}.pooler")
    of_head = tuple(f"{head}." for head in heads)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    targets = sorted({name.rpartition(".")[2] for name in linear if not f"{name}.".startswith(of_head)})
    config = LoraConfig(
        task_type="SEQ_CLS",
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=targets,
        exclude_modules=[name for name in linear if f"{name}.".startswith(of_head)],
        base_model_name_or_path=str(Path(base).resolve()) if base and Path(base).is_dir() else base or None,
    )
    return config, heads


def save_adapter(folder: Path, config: LoraConfig, weights: dict[str, torch.Tensor]) -> None:
    """Write trained weights, by transformers' names, into `adapter` in a run folder, as peft reads them."""
    target = folder / FOLDER
    target.mkdir(exist_ok=True)
    with whole_files(folder / f".{FOLDER}", target) as aside:
        config.save_pretrained(aside)
        renamed = {PREFIX + name.replace(f".{NAME}.", "."): value for name, value in weights.items()}
        save_file({name: value.contiguous() for name, value in renamed.items()}, aside / WEIGHTS)
        shutil.copymode(aside / CONFIG, aside / WEIGHTS)


def load_adapter(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a file that `save_adapter` wrote, by the names of transformers' model."""
    return {
        re.sub(r"(\.lora_[AB])\.", rf"\1.{NAME}.", name.removeprefix(PREFIX)): value
        for name, value in load_file(path).items()
    }
