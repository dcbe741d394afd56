"""Where and how a process computes: its device, what such a device can do, and the precision."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from ..errors import InputError, listed

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CPUINFO = Path("/proc/cpuinfo")  # its lines: https://docs.kernel.org/arch/x86/cpuinfo.html


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device of a process; `auto` is the accelerator that torch finds, else the CPU. Raises
    InputError if it is not there. torch calls ROCm cuda, and loads packages such as torch_npu itself."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    offered = ["cpu"]
    if accelerator is not None:
        offered.insert(0, accelerator.type)
    name, colon, number = wanted.partition(":")
    name = {"auto": offered[0], "hip": "cuda"}.get(name, name)
    if name == "cpu":
        return torch.device("cpu")
    count = 0
    if name in offered:
        count = torch.accelerator.device_count()
    if not colon:
        index = local_rank
    elif number.isdecimal():
        index = int(number)
    else:
        # No device has this number: it is refused below
        index = count
    if index >= count:
        raise InputError(
            f"the device must be auto or what torch {torch.__version__} offers on this machine, "
            f"{listed(offered)}, with :N for one of several, found '{wanted}' for process {local_rank}; "
            f"there are {count}; choose another one, or fewer processes, or install the torch for that device"
        )
    return torch.device(name, index)


def is_cuda(device: torch.device) -> bool:
    """Return whether a device has what torch has for CUDA (and ROCm, which torch calls so) only:
    kernels for rows of any length, TF32, copies from pinned memory, DataParallel."""
    return device.type == "cuda"


def has_memory(device: torch.device) -> bool:
    """Return whether a device has memory, and random numbers, of its own."""
    return device.type != "cpu"


def peak_memory(device: torch.device) -> int | None:
    """Return the most bytes that this process has had allocated on a device, None where torch cannot tell."""
    get_peak = getattr(torch.get_device_module(device), "max_memory_allocated", None)
    if get_peak is None or not has_memory(device):
        return None
    return get_peak(device)


class Precision:
    """The contexts of one precision (`fp32`, `bf16` or `fp16`) on one type of device,
    https://docs.pytorch.org/docs/stable/amp.html. With `caches_casts`, weights in low precision
    are kept for a whole step, which needs memory for them."""

    def __init__(self, name: str, device: torch.device, caches_casts: bool = True) -> None:
        self.name = name
        self.device_type = device.type
        self.caches_casts = caches_casts and name != "fp32"

    def autocast(self) -> AbstractContextManager:
        """Return the context of a forward pass."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(self.device_type, DTYPES[self.name])

    @contextmanager
    def cached_autocast(self) -> Iterator[None]:
        """Return a context in which all forward passes under `autocast` share their casts of the weights.
        Autocast keeps the low-precision copy of each weight until the outermost autocast ends. This is that
        one, switched off inside: only code under `autocast` itself runs in low precision."""
        if not self.caches_casts:
            yield
            return
        with self.autocast(), torch.autocast(self.device_type, enabled=False):
            yield


def without_autocast(device_type: str) -> AbstractContextManager:
    """Return a context in which operations on a type of device compute in the dtype of their inputs."""
    # torch has no autocast for some types, such as meta, and refuses even to ask for it
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Return `values` in float32; those in float64, in which `python -m app verify` trains, as they are."""
    if values.dtype == torch.float64:
        return values
    return values.float()


@dataclass(frozen=True)
class Processor:
    """What Linux says of the first core: the vendor, such as AuthenticAMD, and the instruction sets."""

    vendor: str = ""
    instruction_sets: frozenset[str] = frozenset()


def read_processor(path: Path) -> Processor:
    """Return the processor that a file such as /proc/cpuinfo describes; one without vendor and instruction
    sets where there is no such file, or the processor is not of the x86 family."""
    values: dict[str, str] = {}
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            # The first core comes first
            values.setdefault(key.strip(), value.strip())
    instruction_sets = frozenset(values.get("flags", "").split())
    return Processor(values.get("vendor_id", ""), instruction_sets)


def fastest_precision(device: torch.device) -> str:
    """Return `bf16` for a device that is faster in it, else `fp32`: the same on every start of a machine,
    also beside other programs."""
    if is_cuda(device):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if has_bf16 else "fp32"
    if has_memory(device):
        return "fp32"
    return precision_of_processor(read_processor(CPUINFO))


def precision_of_processor(processor: Processor) -> str:
    """Return the precision in which a processor trains faster. docs/lab/decisions.md has what was measured:
    with AVX-512 alone bf16 is faster on AMD, and half as fast on Intel. What was not measured trains in
    fp32."""
    if "amx_bf16" in processor.instruction_sets:
        return "bf16"
    if processor.vendor == "AuthenticAMD" and "avx512_bf16" in processor.instruction_sets:
        return "bf16"
    return "fp32"
