"""nn.DataParallel: one process drives all GPUs; each forward pass copies the model to them and splits the batch by rows."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import nn

from app.strategies.base import Strategy

logger = logging.getLogger(__name__)


class DataParallel(Strategy):
    """One process, every CUDA device. It cuts dim 0 of its inputs, so batches are padded, not packed."""

    packs = False

    def setup(self, model: nn.Module, build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        super().setup(model, build_optimizer)
        devices = list(range(torch.cuda.device_count())) if self.device.type == "cuda" else []
        if len(devices) < 2:
            logger.info(
                "DataParallel found %d CUDA devices, so it does what run_single.py does; it needs two or more",
                len(devices),
            )
        self.module = nn.DataParallel(model, device_ids=devices)

    def plain_module(self) -> nn.Module:
        return self.module.module
