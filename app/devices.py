"""What this machine has for a process: its device, bf16 arithmetic, its share of the cores."""

from __future__ import annotations

import os
import platform

import torch

from app.errors import InputError


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device of a process; `auto` takes CUDA, then MPS, then the CPU. Raises InputError if it is not there."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"train.device must be auto, cpu, cuda, cuda:N or mps, found '{wanted}'")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = local_rank if device.index is None else device.index
        if index >= count:
            raise InputError(
                f"train.device {wanted}: this machine has {count} CUDA devices that torch can use; choose another, or auto"
            )
        return torch.device("cuda", index)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("train.device mps: torch finds no MPS device here; set it to auto")
    return device


def has_bf16() -> bool:
    """Return whether the CPU multiplies bf16 matrices in hardware, as far as torch can tell (x86 only; else True)."""
    checks = [getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile")]
    return platform.machine() not in ("x86_64", "AMD64") or not all(checks) or any(check() for check in checks)


def set_threads(threads: int | None, local_world_size: int) -> None:
    """Give this process its share of the machine's cores: more threads than cores can slow a step tenfold."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(threads or max(1, cores // local_world_size))
