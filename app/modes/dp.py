"""nn.DataParallel: one process drives all GPUs; each pass copies the model and splits the batch by rows."""

import logging

import torch
from torch import nn

from ..runtime.devices import Precision, is_cuda
from .mode import BuildOptimizer, Mode

logger = logging.getLogger(__name__)


class InPrecision(nn.Module):
    """A model whose forward pass enters autocast itself.

    DataParallel runs each copy of the model in a thread, where it turns autocast on again without its dtype;
    on CUDA that would be fp16, whatever the configured precision. A module, because the copies of a model
    share its other attributes.
    """

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.precision = precision

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits of a part of the batch."""
        with self.precision.autocast():
            return self.model(**inputs)


class DataParallel(Mode):
    """One process, every CUDA device. It splits dim 0 of its inputs, so batches are padded, not packed."""

    accepts_packed = False

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        super().wrap(model, build_optimizer)
        count, first = torch.cuda.device_count() if is_cuda(self.device) else 0, self.device.index or 0
        # The first holds the model
        devices = sorted(range(count), key=lambda number: (number != first, number))
        if count < 2:
            logger.info("DataParallel found %d CUDA devices, so it does what run_single.py does", count)
        self.module = nn.DataParallel(InPrecision(model, self.precision), device_ids=devices)

    def unwrapped_module(self) -> nn.Module:
        return self.module.module.model
