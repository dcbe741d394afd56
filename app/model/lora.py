"""`model.lora_rank`: only small factors and the head are trained.

LoRA is that of peft: beside each frozen matrix of the encoder stands a small one of two trained factors; the
head is trained in full. https://huggingface.co/docs/peft/package_reference/lora
"""

import logging
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..errors import InputError, needed
from ..runtime.disk import whole_files
from .classifier import PackedModel

logger = logging.getLogger(__name__)

# In the run folder, as peft reads and writes it
FOLDER = "adapter"
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PREFIX = "base_model.model."  # before each name in peft's file
NAME = "default"  # of the adapter, which the names of weights have in a model, but not in peft's file


def add_lora(model: PackedModel, rank: int) -> None:
    """Freeze a model but for its head, and add trained factors to the linear layers of the encoder. Raises
    InputError where peft is missing, and for an encoder without such layers."""
    with needed("lora"):
        from peft import LoraConfig, inject_adapter_in_model
    inner = model.model
    heads = head_names(inner)
    encoder_layers, head_layers = linear_layers(inner, heads)
    # Lists, so that equal runs write equal files
    layer_names = sorted({name.rpartition(".")[2] for name in encoder_layers})
    if not layer_names:
        raise InputError(
            "model.lora_rank needs linear layers of torch in the encoder, found none in a "
            f"{inner.config.model_type} model; leave it out, or use another model"
        )
    config = LoraConfig(
        task_type="SEQ_CLS",
        r=rank,
        lora_alpha=2 * rank,
        target_modules=layer_names,
        exclude_modules=sorted(head_layers),
        base_model_name_or_path=base_model_name(inner),
    )
    inject_adapter_in_model(config, inner, NAME)
    # For peft's file only: during the training it would keep the untrained head as well
    config.modules_to_save = heads
    config.target_modules = layer_names
    for head in heads:
        inner.get_submodule(head).requires_grad_(True)
    for module in inner.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            # Autocast casts what has to be cast
            module.cast_input_dtype_enabled = False
    model.adapter = config
    num_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    logger.info(
        f"model.lora_rank {rank}: {num_trained:,} parameters are trained, in {layer_names} and the head."
    )


def head_names(model: nn.Module) -> list[str]:
    """Return the names of the parts of a model of transformers that come after its layers."""
    encoder = model.base_model_prefix
    names = []
    for name, child in model.named_children():
        if name != encoder and len(list(child.parameters())) > 0:
            names.append(name)
    if getattr(model.base_model, "pooler", None) is not None:
        names.append(f"{encoder}.pooler")
    return names


def linear_layers(model: nn.Module, heads: list[str]) -> tuple[set[str], set[str]]:
    """Return the names of the linear layers in the encoder of a model, and of those in the parts `heads`."""
    head_prefixes = tuple(f"{head}." for head in heads)
    encoder_layers = set()
    head_layers = set()
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if f"{name}.".startswith(head_prefixes):
            head_layers.add(name)
        else:
            encoder_layers.add(name)
    return encoder_layers, head_layers


def base_model_name(model: nn.Module) -> str | None:
    """Return the hub name of the checkpoint that a model was loaded from, or its full path; None for random
    weights."""
    name = model.name_or_path
    if not name:
        return None
    if Path(name).is_dir():
        return str(Path(name).resolve())
    return name


def save_adapter(folder: Path, config, weights: dict[str, torch.Tensor]) -> None:
    """Write trained weights, by transformers' names, as peft reads them; `config` is peft's."""
    target = folder / FOLDER
    target.mkdir(exist_ok=True)
    renamed = {}
    for name, value in weights.items():
        renamed[PREFIX + name.replace(f".{NAME}.", ".")] = value.contiguous()
    with whole_files(folder / f".{FOLDER}", target) as aside:
        config.save_pretrained(aside)
        save_file(renamed, aside / WEIGHTS)
        shutil.copymode(aside / CONFIG, aside / WEIGHTS)


def load_adapter(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a file that `save_adapter` wrote, by the names of transformers' model."""
    weights = {}
    for name, value in load_file(path).items():
        name_in_model = re.sub(r"(\.lora_[AB])\.", rf"\1.{NAME}.", name.removeprefix(PREFIX))
        weights[name_in_model] = value
    return weights
