"""How an error says that memory ran out, and what then has to change."""

import logging

import torch

logger = logging.getLogger(__name__)
# oneDNN gives no reason when it finds no memory for a kernel, and gives the thread no more of them then.
NO_KERNEL = "could not create a primitive"
# The others are messages of torch's allocators.
MESSAGES = ("can't allocate memory", "out of memory", NO_KERNEL)


def is_out_of_memory(error: Exception) -> bool:
    has_own_type = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return has_own_type or any(message in str(error) for message in MESSAGES)


def replace_onednn(error: Exception) -> None:
    """Compute without oneDNN from now on, where it is what found no memory: it would find none again."""
    if NO_KERNEL in str(error) and torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.set_flags(False)
        logger.warning("oneDNN found no memory for a kernel: torch's own kernels are used from now on")
