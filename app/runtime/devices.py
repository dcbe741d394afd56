"""What this machine offers a process: its device, the speed of bf16, its part of the cores."""

from __future__ import annotations

import functools
import os
import time

import torch
from torch.nn.functional import linear

from ..errors import InputError
from .cores import num_cores

# bf16 needs casts, too: below this ratio of matrix products a training step gains nothing
FASTER = 1.2


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device of a process; `auto` takes CUDA, then MPS, then the CPU. Raises InputError if it is
    not there."""
    if wanted == "auto":
        wanted = (
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"the device must be auto, cpu, cuda, cuda:N or mps, found '{wanted}'")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = local_rank if device.index is None else device.index
        if index >= count:
            raise InputError(
                f"device {wanted}: this machine has {count} CUDA devices that torch can use; choose "
                "another one, or auto"
            )
        return torch.device("cuda", index)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device mps: torch finds no MPS device here; set it to auto")
    return device


# So that `auto` and the warning about bf16 see the same noise
@functools.cache
def bf16_speedup() -> float:
    """Return this CPU's speed in bf16 divided by that in fp32, for matrix products of BERT's shapes, measured
    in 0.1 s.

    The CPU's list of instructions is not enough: one with bf16 instructions may be half as fast with them
    (Xeon, AVX-512 without AMX, torch 2.13).
    """
    seconds = {dtype: _product_seconds(dtype) for dtype in (torch.float32, torch.bfloat16)}
    return seconds[torch.float32] / seconds[torch.bfloat16]


def fastest_precision(device: torch.device) -> str:
    """Return `bf16` for a device that is faster in it, else `fp32`; on the CPU both are measured, in 0.1
    s."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and bf16_speedup() > FASTER else "fp32"


def _product_seconds(dtype: torch.dtype) -> float:
    states, weight = torch.ones(256, 768, dtype=dtype), torch.ones(768, 768, dtype=dtype)
    seconds = []
    for _ in range(8):
        started = time.perf_counter()
        linear(states, weight)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def set_threads(threads: int | None, local_world_size: int) -> None:
    """Give this process its part of the machine's cores: more threads than cores can make a step ten times
    slower.

    A single process takes OMP_NUM_THREADS, if it is set; for several, launchers set it to 1.
    """
    given = os.environ.get("OMP_NUM_THREADS", "") if local_world_size == 1 else ""
    wanted = threads or (int(given) if given.isdecimal() else 0)
    torch.set_num_threads(wanted or max(1, num_cores() // local_world_size))
