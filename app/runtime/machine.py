"""A process is set up for training."""

import torch

from ..config.schema import TrainConfig
from .cores import set_threads
from .devices import is_cuda
from .memory import keep_freed_memory


def set_up_machine(config: TrainConfig, device: torch.device, local_world_size: int) -> None:
    """Set threads, allocator and precision of matrix products of a process that will train on `device`,
    beside the other processes on this machine, `local_world_size` in all."""
    set_threads(config.threads, local_world_size)
    keep_freed_memory()
    if is_cuda(device):
        # A run in fp32 keeps all its bits; in others, TF32 may compute what autocast leaves in fp32
        torch.set_float32_matmul_precision("highest" if config.precision == "fp32" else "high")
