"""Malloc thresholds and kernel caches: how much host memory a process keeps."""

import ctypes
import gc
import os
from contextlib import suppress

import torch

from .devices import has_memory

# glibc's names and numbers, https://man7.org/linux/man-pages/man3/mallopt.3.html
# Free bytes at the end of the heap above which they are returned to the system
M_TRIM_THRESHOLD = -1
# Bytes above which a block is taken from the system, and returned to it when freed
M_MMAP_THRESHOLD = -3
NEVER = -1
# https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html,
# https://github.com/pytorch/pytorch/issues/27971
KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def keep_few_kernels() -> None:
    """Let oneDNN and torch keep 64 compiled kernels each, not 1,024; to be called before the first product.

    In bf16 they compile a kernel for each size of a matrix, and nearly every packed batch has another number
    of tokens. For BERT-base each number takes 5 MB of kernels, and these lie between the tensors, so that
    less of the freed memory can be reused. A pass needs about 30 kernels; compiling them again takes 9 ms.
    The user's own environment variables come first.
    """
    for name in KERNEL_CACHES:
        os.environ.setdefault(name, "64")


def keep_freed_memory() -> None:
    """Make malloc keep freed memory, except blocks of more than 32 MB, the most that glibc allows.

    A step asks for the memory that the previous step has freed. Pages that were returned to the system in
    between come back as new pages: 16,000 to 95,000 of 4 KiB in a step of BERT-base, which takes 3 to 8
    microseconds each in a virtual machine, 5 % of the step. The fixed threshold also keeps the largest blocks
    of batches of many sizes from fragmenting the heap.
    """
    _set_malloc(32 << 20, NEVER)


def give_back_memory(device: torch.device) -> None:
    """Return freed memory to the system, now and later: kept blocks may have the wrong size."""
    gc.collect()
    if has_memory(device):
        torch.accelerator.empty_cache()
    _set_malloc(1 << 20, 128 << 10)
    trim_heap()


def trim_heap() -> None:
    """Return the freed memory that malloc keeps to the system; what is freed later is kept as before."""
    if glibc := _glibc():
        glibc.malloc_trim(0)


def _set_malloc(mmap_threshold: int, trim_threshold: int) -> None:
    """Set both thresholds, in bytes."""
    if glibc := _glibc():
        glibc.mallopt(M_MMAP_THRESHOLD, mmap_threshold)
        glibc.mallopt(M_TRIM_THRESHOLD, trim_threshold)


def _glibc() -> ctypes.CDLL | None:
    """Return the C library, or None where it is not glibc."""
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        if library.mallopt and library.malloc_trim:
            return library
    return None
