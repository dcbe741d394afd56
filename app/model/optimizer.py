"""The optimizer of a model: which weights decay, and which learn at the rate of the head."""

import torch
from torch import nn

from ..config.schema import TrainConfig
from ..runtime.devices import is_cuda
from .model_parts import encoder_parameters, norm_parameters


def build_optimizer(model: nn.Module, inner: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return AdamW (fused on CPU and CUDA) or SGD over the trainable parameters of `model`, a wrapper of
    `inner`, which is transformers'. Each group has an `lr_scale`, the factor on the learning rate of the
    encoder, or where this is 0 of the head."""
    encoder_rate = config.learning_rate
    head_rate = config.head_learning_rate
    if head_rate is None:
        head_rate = encoder_rate
    peak_rate = encoder_rate or head_rate
    encoder = encoder_parameters(inner)
    norms = norm_parameters(inner)
    groups_by_key: dict[tuple[float, float], dict] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = head_rate
        if parameter in encoder:
            rate = encoder_rate
        decay = config.weight_decay
        # Biases and norms do not decay
        if name.endswith("bias") or parameter in norms:
            decay = 0.0
        key = (decay, rate)
        if key not in groups_by_key:
            lr_scale = 0.0
            if peak_rate:
                lr_scale = rate / peak_rate
            groups_by_key[key] = {"params": [], "weight_decay": decay, "lr_scale": lr_scale}
        groups_by_key[key]["params"].append(parameter)
    groups = list(groups_by_key.values())
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=peak_rate)
    device = groups[0]["params"][0].device
    return torch.optim.AdamW(groups, lr=peak_rate, fused=device.type == "cpu" or is_cuda(device))
