"""How this process keeps freed memory, and gives it back."""

import ctypes
import gc
import os
from contextlib import suppress

import torch

from .devices import has_memory

# glibc's names and numbers, https://man7.org/linux/man-pages/man3/mallopt.3.html
M_TRIM_THRESHOLD = -1  # free bytes at the end of the heap above which they are returned to the system
M_MMAP_THRESHOLD = -3  # bytes above which a block is taken from the system, and returned to it when freed
MAX_KERNELS = 64  # compiled kernels that oneDNN and torch keep each


def keep_few_kernels() -> None:
    """Let oneDNN and torch keep 64 compiled kernels each, not 1,024; to be called before the first product.

    In bf16 they compile a kernel for each size of a matrix, and nearly every packed batch has another number
    of tokens: 5 MB of kernels for BERT-base, between the tensors, so that less of the freed memory can be
    reused. A pass needs about 30. The user's own environment variables come first. See
    https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html and pytorch issue 27971.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(MAX_KERNELS))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(MAX_KERNELS))


def keep_freed_memory() -> None:
    """Make malloc keep freed memory, except blocks of more than 32 MB, the most that glibc allows. A step
    asks for the memory that the previous step has freed. Pages that were returned to the system in between
    come back as new pages, which takes 5 % of a step of BERT-base in a virtual machine."""
    _call_glibc("mallopt", M_MMAP_THRESHOLD, 32 << 20)
    _call_glibc("mallopt", M_TRIM_THRESHOLD, -1)


def give_back_memory(device: torch.device) -> None:
    """Return freed memory to the system, now and later: kept blocks may have the wrong size."""
    gc.collect()
    if has_memory(device):
        torch.accelerator.empty_cache()
    _call_glibc("mallopt", M_MMAP_THRESHOLD, 1 << 20)
    _call_glibc("mallopt", M_TRIM_THRESHOLD, 128 << 10)
    trim_heap()


def trim_heap() -> None:
    """Return the freed memory that malloc keeps to the system; what is freed later is kept as before."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(function: str, *arguments: int) -> None:
    """Call a function of glibc; nothing happens where the C library is another one."""
    with suppress(AttributeError, OSError, TypeError):
        getattr(ctypes.CDLL(None), function)(*arguments)
