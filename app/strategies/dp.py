"""nn.DataParallel: one process drives all GPUs; each forward pass copies the model to them and splits the batch by rows."""

from __future__ import annotations

import logging

import torch
from torch import nn

from app.strategies.strategy import BuildOptimizer, Strategy

logger = logging.getLogger(__name__)


class DataParallel(Strategy):
    """One process, every CUDA device. It splits dim 0 of its inputs, so batches are padded, not packed."""

    accepts_packed = False

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        super().wrap(model, build_optimizer)
        devices = list(range(torch.cuda.device_count())) if self.device.type == "cuda" else []
        if len(devices) < 2:
            logger.info(
                "DataParallel found %d CUDA devices, so it does what run_single.py does; it needs two or more",
                len(devices),
            )
        self.module = nn.DataParallel(model, device_ids=devices)

    def unwrapped_module(self) -> nn.Module:
        return self.module.module
