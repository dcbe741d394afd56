"""Which weights of a model are trained: all, not those of the lowest layers, or LoRA factors and the head.

What is not trained has no gradient, no optimizer state and no backward pass. LoRA is that of peft: beside
each frozen matrix of the encoder a small one of two trained factors; the head is trained in full.
https://huggingface.co/docs/peft/package_reference/lora
"""

import logging
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..errors import InputError
from ..runtime.disk import whole_files
from .classifier import PackedModel
from .dropout import replace_dropout

logger = logging.getLogger(__name__)
# After the last layer of decoders, ModernBERT and DeBERTa-v2
LAST_NORM = re.compile(r"\b(model\.norm|final_norm|encoder\.LayerNorm)\.")
# In the run folder, as peft reads and writes it
FOLDER, WEIGHTS, CONFIG = "adapter", "adapter_model.safetensors", "adapter_config.json"
# Before each name in peft's file; in a model, names have that of the adapter inside
PREFIX, NAME = "base_model.model.", "default"


def layer_depth(name: str, num_layers: int) -> int:
    """Return 0 for the embeddings, 1 to `num_layers` for the encoder's layers, one more for the head."""
    if layer := re.search(r"\blayers?\.(\d+)\.", name):
        return int(layer.group(1)) + 1
    if LAST_NORM.search(name):
        return num_layers
    return 0 if "embed" in name else num_layers + 1


def freeze(model: nn.Module, lowest: str | int | None, num_layers: int) -> None:
    """Do not train the `embeddings` of a model, or these and its `lowest` layers, or the whole `encoder`;
    None: train all.

    A weight that the head shares with the embeddings is frozen too. Raises InputError for more layers than
    the model has, and for a model whose layers cannot be told from the names of its parameters.
    """
    if lowest is None:
        return
    last = int({"embeddings": 0, "encoder": num_layers}.get(lowest, lowest))
    depths = {name: layer_depth(name, num_layers) for name, _ in model.named_parameters()}
    if not set(range(last + 1)) <= set(depths.values()) - {num_layers + 1}:
        raise InputError(
            f"model.freeze must be at most the model's {num_layers} layers, found {lowest}, and these must "
            "have parameters named embeddings and layer.N; lower it, or leave it out"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(depths[name] > last)
    logger.info("model.freeze %s: %s parameters are trained.", lowest, _trained(model))


def _trained(model: nn.Module) -> str:
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return f"{sum(size for size, is_trained in sizes if is_trained):,} of {sum(size for size, _ in sizes):,}"


def add_lora(model: PackedModel, rank: int | None) -> None:
    """Freeze a model but for its head, and add trained factors to the linear layers of the encoder; without a
    rank nothing is done. Raises InputError where peft is missing."""
    if not rank:
        return
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise InputError(f"LoRA needs peft: pip install -r requirements/lora.txt ({error})") from error
    inner = model.model
    encoder, base = inner.base_model_prefix, inner.name_or_path
    heads = [name for name, child in inner.named_children() if name != encoder and [*child.parameters()]]
    if getattr(inner.base_model, "pooler", None) is not None:
        heads.append(f"{encoder}.pooler")
    linear = {name for name, module in inner.named_modules() if isinstance(module, nn.Linear)}
    of_heads = {name for name in linear if f"{name}.".startswith(tuple(f"{head}." for head in heads))}
    # Lists, so that equal runs write equal files
    layers = sorted({name.rpartition(".")[2] for name in linear - of_heads})
    config = LoraConfig(
        task_type="SEQ_CLS",
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=layers,
        exclude_modules=sorted(of_heads),
        base_model_name_or_path=str(Path(base).resolve()) if base and Path(base).is_dir() else base or None,
    )
    inject_adapter_in_model(config, inner, NAME)
    # For peft's file only: it would keep the untrained head as well
    config.modules_to_save, config.target_modules = heads, layers
    for head in heads:
        inner.get_submodule(head).requires_grad_(True)
    for module in inner.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            # Autocast casts what has to be cast
            module.cast_input_dtype_enabled = False
    replace_dropout(model)
    model.adapter = config
    counts, names = _trained(model), ", ".join(layers)
    logger.info("model.lora_rank %d: %s parameters are trained, in %s and the head.", rank, counts, names)


def save_adapter(folder: Path, config, weights: dict[str, torch.Tensor]) -> None:
    """Write trained weights, by transformers' names, into `adapter` in a run folder, as peft reads them;
    `config` is peft's."""
    target = folder / FOLDER
    target.mkdir(exist_ok=True)
    renamed = {PREFIX + name.replace(f".{NAME}.", "."): value for name, value in weights.items()}
    with whole_files(folder / f".{FOLDER}", target) as aside:
        config.save_pretrained(aside)
        save_file({name: value.contiguous() for name, value in renamed.items()}, aside / WEIGHTS)
        shutil.copymode(aside / CONFIG, aside / WEIGHTS)


def load_adapter(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a file that `save_adapter` wrote, by the names of transformers' model."""
    return {
        re.sub(r"(\.lora_[AB])\.", rf"\1.{NAME}.", name.removeprefix(PREFIX)): value
        for name, value in load_file(path).items()
    }
