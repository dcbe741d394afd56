"""What becomes of host memory that tensors no longer need: glibc's malloc keeps it for the next, or gives it back."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

import torch

# glibc's names and numbers, https://man7.org/linux/man-pages/man3/mallopt.3.html
M_TRIM_THRESHOLD = -1  # bytes free at the end of the heap from which on they go back to the system
M_MMAP_THRESHOLD = -3  # bytes from which on a block is taken from the system, and goes back to it when it is freed
NEVER = -1


def keep_freed_memory() -> None:
    """Have malloc keep freed memory for this process, but for blocks of more than 32 MB, the most that glibc allows.

    A step asks for what the step before has freed. Pages that went back to the system meanwhile come again as new ones:
    16,000 to 95,000 of 4 KiB in a step of BERT-base, at 3 to 8 microseconds each in a virtual machine, 5 % of the step.
    The fixed threshold also keeps batches of ever new sizes from fragmenting the heap with their largest blocks.
    """
    _set_malloc(32 << 20, NEVER)


def give_back_memory(device: torch.device) -> None:
    """Return what the allocators keep of freed memory, now and from now on: pieces of the wrong size are of no use."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    _set_malloc(1 << 20, 128 << 10)
    trim_heap()


def trim_heap() -> None:
    """Return to the system what malloc keeps of freed memory; what is freed later is kept as before."""
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
