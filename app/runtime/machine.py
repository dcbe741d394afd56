"""What a process sets before it trains: its threads, its arithmetic, and how much host memory it keeps."""

import ctypes
import gc
import os
from contextlib import suppress

import torch

from ..config.schema import TrainConfig
from .devices import has_memory, is_cuda, set_threads

# glibc's names and numbers, https://man7.org/linux/man-pages/man3/mallopt.3.html
M_TRIM_THRESHOLD = -1  # free bytes at the end of the heap above which they are returned to the system
M_MMAP_THRESHOLD = -3  # bytes above which a block is taken from the system, and returned to it when freed
NEVER = -1
# https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html,
# https://github.com/pytorch/pytorch/issues/27971
KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def set_up_machine(config: TrainConfig, device: torch.device, local_world_size: int) -> None:
    """Set threads, allocator and precision of matrix products of a process that will train on `device`."""
    set_threads(config.threads, local_world_size)
    keep_freed_memory()
    if is_cuda(device):
        # What autocast leaves in fp32 may use TF32 then; a run in fp32 keeps all its bits.
        torch.set_float32_matmul_precision("highest" if config.precision == "fp32" else "high")


def keep_few_kernels() -> None:
    """Let oneDNN and torch keep 64 compiled kernels each, not 1,024; to be called before the first product.

    In bf16 they compile a kernel for each size of a matrix, and nearly every packed batch has another number
    of tokens: 5 MB of kernels for BERT-base, between the tensors, so that less of the freed memory can be
    reused. A pass needs about 30. The user's own environment variables come first.
    """
    for name in KERNEL_CACHES:
        os.environ.setdefault(name, "64")


def keep_freed_memory() -> None:
    """Make malloc keep freed memory, except blocks of more than 32 MB, the most that glibc allows.

    A step asks for the memory that the previous step has freed. Pages that were returned to the system in
    between come back as new pages, which takes 5 % of a step of BERT-base in a virtual machine.
    """
    _malloc("mallopt", M_MMAP_THRESHOLD, 32 << 20)
    _malloc("mallopt", M_TRIM_THRESHOLD, NEVER)


def give_back_memory(device: torch.device) -> None:
    """Return freed memory to the system, now and later: kept blocks may have the wrong size."""
    gc.collect()
    if has_memory(device):
        torch.accelerator.empty_cache()
    _malloc("mallopt", M_MMAP_THRESHOLD, 1 << 20)
    _malloc("mallopt", M_TRIM_THRESHOLD, 128 << 10)
    trim_heap()


def trim_heap() -> None:
    """Return the freed memory that malloc keeps to the system; what is freed later is kept as before."""
    _malloc("malloc_trim", 0)


def _malloc(function: str, *arguments: int) -> None:
    """Call a function of glibc; nothing happens where the C library is another one."""
    with suppress(AttributeError, OSError, TypeError):
        getattr(ctypes.CDLL(None), function)(*arguments)
