"""What this machine offers a process: its device and its part of the cores; and the arithmetic."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.nn.functional import linear

from ..errors import InputError, listed
from .processes import num_cores

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# bf16 needs casts, too: below this ratio of matrix products a training step gains nothing
FASTER = 1.2
MAX_MEASUREMENT_SECONDS = 0.1


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device of a process; `auto` is the accelerator that torch finds, else the CPU. Raises
    InputError if it is not there. torch calls ROCm cuda, and loads packages such as torch_npu itself."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    offered = ["cpu"] if accelerator is None else [accelerator.type, "cpu"]
    name, colon, number = wanted.partition(":")
    name = {"auto": offered[0], "hip": "cuda"}.get(name, name)
    if name not in offered or (colon and not number.isdecimal()):
        raise InputError(
            f"the device must be auto or what this torch ({torch.__version__}) offers on this machine, "
            f"{listed(offered)}, with :N for one of several, found '{wanted}'; for another device install "
            "the torch, or the package beside it, that is made for it"
        )
    if name == "cpu":
        return torch.device("cpu")
    index, count = int(number or local_rank), torch.accelerator.device_count()
    if index >= count:
        raise InputError(
            f"device {wanted}, process {local_rank} of this machine: torch finds {count} {name} devices "
            "here, numbered from 0; choose another one, or fewer processes"
        )
    return torch.device(name, index)


def is_cuda(device: torch.device) -> bool:
    """Return whether a device has what torch has for CUDA (and ROCm, which torch calls so) only:
    kernels for rows of any length, TF32, copies from pinned memory, DataParallel."""
    return device.type == "cuda"


def has_memory(device: torch.device) -> bool:
    """Return whether a device has memory, and random numbers, of its own."""
    return device.type != "cpu"


def computes_float64(device: torch.device) -> bool:
    """Return whether a device is known to compute in float64; MPS and Ascend's matrix units do not."""
    return device.type in ("cpu", "cuda")


def count_devices(wanted: str) -> int:
    """Return the number of accelerators that a run with `train.device` set to `wanted` may use."""
    return 0 if wanted == "cpu" or ":" in wanted else torch.accelerator.device_count()


def device_name(device: torch.device) -> str:
    """Return the name of a device's product, where torch or the system tells it."""
    get_name = getattr(torch.get_device_module(device), "get_device_name", None)
    if get_name is not None and has_memory(device):
        return get_name(device)
    return platform.processor() or platform.machine()


def peak_memory(device: torch.device) -> int | None:
    """Return the most bytes that this process has had allocated on a device, None where torch cannot tell."""
    get_peak = getattr(torch.get_device_module(device), "max_memory_allocated", None)
    return get_peak(device) if get_peak is not None and has_memory(device) else None


class Precision:
    """The contexts and the loss scaler of one precision (`fp32`, `bf16` or `fp16`) on one type of device:
    https://docs.pytorch.org/docs/stable/amp.html."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self.device_type = device.type

    def autocast(self) -> AbstractContextManager:
        """Return the context of a forward pass."""
        return nullcontext() if self.name == "fp32" else torch.autocast(self.device_type, DTYPES[self.name])

    @contextmanager
    def cached_autocast(self) -> Iterator[None]:
        """Return a context in which all forward passes under `autocast` share their casts of the weights.

        Autocast keeps the low-precision copy of each weight until the outermost autocast ends. This is that
        one, switched off inside: only code under `autocast` itself runs in low precision.
        """
        if self.name == "fp32":
            yield
            return
        with self.autocast(), torch.autocast(self.device_type, enabled=False):
            yield

    def new_scaler(self) -> torch.amp.GradScaler | None:
        """Return a loss scaler for fp16, in which small gradients would round to zero, else None."""
        return torch.amp.GradScaler(self.device_type) if self.name == "fp16" else None


def at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Return `values` in float32; those in float64, in which `python -m app verify` trains, as they are."""
    return values if values.dtype == torch.float64 else values.float()


def bf16_speedup() -> float:
    """Return this CPU's speed in bf16 divided by that in fp32, on BERT's shapes, measured in 0.1 s: with bf16
    instructions it may yet be half as fast (Xeon, AVX-512 without AMX, torch 2.13)."""
    cpu = torch.device("cpu")
    return product_speed(cpu, torch.bfloat16) / product_speed(cpu, torch.float32)


def fastest_precision(device: torch.device) -> str:
    """Return `bf16` for a device that is faster in it, else `fp32`; on the CPU measures both, in 0.1 s."""
    if is_cuda(device):
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and bf16_speedup() > FASTER else "fp32"


def product_speed(device: torch.device, dtype: torch.dtype) -> float:
    """Return the arithmetic operations a second of matrix products on a device, the most of 8 measurements;
    of fewer if they take long."""
    # A GPU needs larger products, and several between two waits
    rows, width, times = (8192, 2048, 10) if has_memory(device) else (256, 768, 1)
    states = torch.ones(rows, width, dtype=dtype, device=device)
    weight = torch.ones(width, width, dtype=dtype, device=device)
    seconds: list[float] = []
    linear(states, weight)
    while len(seconds) < 8 and sum(seconds) < MAX_MEASUREMENT_SECONDS:
        started = time.perf_counter()
        for _ in range(times):
            product = linear(states, weight)
        # Reading a value waits for any device; not every one has torch's `synchronize`
        product[0, 0].item()
        seconds.append(time.perf_counter() - started)
    return 2 * rows * width**2 * times / min(seconds)


def set_threads(threads: int | None, local_world_size: int) -> None:
    """Give this process its part of the cores: more threads than cores can make a step ten times slower. A
    single process takes OMP_NUM_THREADS, if it is set; for several, launchers set it to 1."""
    given = os.environ.get("OMP_NUM_THREADS", "") if local_world_size == 1 else ""
    wanted = threads or (int(given) if given.isdecimal() else 0)
    torch.set_num_threads(wanted or max(1, num_cores() // local_world_size))
