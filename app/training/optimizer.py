"""The optimizer: its groups of parameters, each with its part of the learning rate."""

import logging
from collections.abc import Iterable

import torch

from ..config.schema import TrainConfig
from ..errors import InputError
from ..model.trained_weights import layer_depth
from ..runtime.devices import is_cuda
from .step import learning_rates

logger = logging.getLogger(__name__)


def parameter_groups(
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]],
    weight_decay: float,
    num_layers: int,
    encoder_scale: float = 1.0,
    head_scale: float = 1.0,
) -> list[dict]:
    """Return groups of parameters with their `weight_decay` and their `lr_scale`, in the order of names.

    Biases and norms have no weight decay. The scale is `head_scale` for the head, else `encoder_scale`.
    """
    groups: dict[tuple[float, float], dict] = {}
    for name, parameter in named_parameters:
        if not parameter.requires_grad:
            continue
        plain = name.endswith("bias") or "norm" in name.lower()
        scale = head_scale if layer_depth(name, num_layers) > num_layers else encoder_scale
        key = (0.0 if plain else weight_decay, scale)
        group = groups.setdefault(key, {"params": [], "weight_decay": key[0], "lr_scale": scale})
        group["params"].append(parameter)
    return list(groups.values())


def build_optimizer(model: torch.nn.Module, config: TrainConfig, num_layers: int) -> torch.optim.Optimizer:
    """Return AdamW (fused on CPU and CUDA), AdamW with an 8-bit state, or SGD over the model's trainable
    parameters; raises InputError where bitsandbytes is missing."""
    peak, *rates = learning_rates(config)
    if not peak:
        logger.warning("train.learning_rate is 0, so nothing is trained")
    scales = [rate / peak if peak else 0.0 for rate in rates]
    groups = parameter_groups(model.named_parameters(), config.weight_decay, num_layers, *scales)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=peak)
    if config.optimizer == "adamw_8bit":
        try:
            from bitsandbytes.optim import AdamW8bit
        except ImportError as error:
            raise InputError(
                "train.optimizer adamw_8bit needs bitsandbytes: pip install -r requirements/8bit.txt "
                f"({error})"
            ) from error
        return AdamW8bit(groups, lr=peak)
    device = groups[0]["params"][0].device
    return torch.optim.AdamW(groups, lr=peak, fused=device.type == "cpu" or is_cuda(device))
