"""What a process sets before it trains: its threads, its memory, its arithmetic."""

import logging

import torch

from ..config.schema import TrainConfig
from .devices import bf16_speedup, is_cuda, set_threads
from .host_memory import keep_freed_memory

logger = logging.getLogger(__name__)
# Warn below this bf16/fp32 speed ratio
SLOW_BF16 = 0.8


def set_up_machine(config: TrainConfig, device: torch.device, local_world_size: int) -> None:
    """Set threads, allocator and precision of matrix products of a process that will train on `device`."""
    set_threads(config.threads, local_world_size)
    keep_freed_memory()
    if config.precision == "bf16" and device.type == "cpu" and (speedup := bf16_speedup()) < SLOW_BF16:
        logger.warning(
            "this CPU multiplies matrices in bf16 at %.2f times the speed of fp32: train.precision fp32 is "
            "faster here",
            speedup,
        )
    if is_cuda(device):
        # What autocast leaves in fp32 may use TF32 then; a run in fp32 keeps all its bits.
        torch.set_float32_matmul_precision("highest" if config.precision == "fp32" else "high")
