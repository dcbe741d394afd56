"""What this machine offers a process: its device, its part of the cores, memory; and the arithmetic."""

import ctypes
import gc
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import joblib
import psutil
import torch
from torch.nn.functional import linear

from ..config.schema import TrainConfig
from ..errors import InputError, listed

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CPUINFO = Path("/proc/cpuinfo")  # its lines: https://docs.kernel.org/arch/x86/cpuinfo.html
LOAD_SECONDS = 0.1  # for which the load of the cores is watched
SPARE_CORES = 0.5  # work of other programs that is not worth a line
# glibc's names and numbers, https://man7.org/linux/man-pages/man3/mallopt.3.html
M_TRIM_THRESHOLD = -1  # free bytes at the end of the heap above which they are returned to the system
M_MMAP_THRESHOLD = -3  # bytes above which a block is taken from the system, and returned to it when freed


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device of a process; `auto` is the accelerator that torch finds, else the CPU. Raises
    InputError if it is not there. torch calls ROCm cuda, and loads packages such as torch_npu itself."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    offered = ["cpu"] if accelerator is None else [accelerator.type, "cpu"]
    name, colon, number = wanted.partition(":")
    name = {"auto": offered[0], "hip": "cuda"}.get(name, name)
    if name == "cpu":
        return torch.device("cpu")
    count = torch.accelerator.device_count() if name in offered else 0
    index = int(number) if number.isdecimal() else count if colon else local_rank
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
    return get_peak(device) if get_peak is not None and has_memory(device) else None


class Precision:
    """The contexts of one precision (`fp32`, `bf16` or `fp16`) on one type of device,
    https://docs.pytorch.org/docs/stable/amp.html; `caches_casts` where there is memory for the whole model in
    low precision during a step."""

    def __init__(self, name: str, device: torch.device, caches_casts: bool = True) -> None:
        self.name, self.device_type = name, device.type
        self.caches_casts = caches_casts and name != "fp32"

    def autocast(self) -> AbstractContextManager:
        return nullcontext() if self.name == "fp32" else torch.autocast(self.device_type, DTYPES[self.name])

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


def at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Return `values` in float32; those in float64, in which `python -m app verify` trains, as they are."""
    return values if values.dtype == torch.float64 else values.float()


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
            values.setdefault(key.strip(), value.strip())
    return Processor(values.get("vendor_id", ""), frozenset(values.get("flags", "").split()))


def without_autocast(device_type: str) -> AbstractContextManager:
    """Return a context in which operations on a type of device compute in the dtype of their inputs."""
    # torch has no autocast for some types, such as meta, and refuses even to ask for it
    is_on = torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)
    return torch.autocast(device_type, enabled=False) if is_on else nullcontext()


def fastest_precision(device: torch.device) -> str:
    """Return `bf16` for a device that is faster in it, else `fp32`: the same on every start of a machine,
    also beside other programs."""
    if is_cuda(device):
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if has_memory(device):
        return "fp32"
    return precision_of_processor(read_processor(CPUINFO))


def precision_of_processor(processor: Processor) -> str:
    """Return the precision in which a processor trains faster. docs/decisions.md has what was measured: with
    AVX-512 alone bf16 is faster on AMD, and half as fast on Intel. What was not measured trains in fp32."""
    has_amx = "amx_bf16" in processor.instruction_sets
    is_fast_amd = processor.vendor == "AuthenticAMD" and "avx512_bf16" in processor.instruction_sets
    return "bf16" if has_amx or is_fast_amd else "fp32"


def busy_cores() -> list[float]:
    """Return how busy each core is that this process may use, from 0 to 1, all programs together. The caller
    sleeps for a tenth of a second."""
    percentages = psutil.cpu_percent(interval=LOAD_SECONDS, percpu=True)
    usable = range(len(percentages))
    if hasattr(os, "sched_getaffinity"):
        usable = os.sched_getaffinity(0)
    return [percentages[core] / 100 for core in usable if core < len(percentages)]


def load_message(busy: list[float], threads: int, processes: int) -> str | None:
    """Return a line for the log where other programs keep cores busy (as `busy_cores` has them) that the
    `threads` of each of the `processes` on this machine are meant for, else None. All threads of a step wait
    for the slowest one, so a thread without a core of its own can make a step several times as slow."""
    free = len(busy) - sum(busy)
    fitting_threads = max(1, int(free + SPARE_CORES) // processes)
    if threads * processes <= free + SPARE_CORES or fitting_threads >= threads:
        return None
    threads_of_run = f"{threads} threads"
    if processes > 1:
        threads_of_run += f" in each of {processes} processes"
    return (
        f"Other programs use {sum(busy):.1f} of {len(busy)} cores, and this run has {threads_of_run}, which "
        f"wait for each other: --train.threads {fitting_threads} may be several times as fast."
    )


@cache
def product_speed(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    """Return what `measure_product_speed` does, measured once in this process for each number of `threads`,
    which must be what the process has now."""
    return measure_product_speed(device, dtype)


def measure_product_speed(device: torch.device, dtype: torch.dtype) -> float:
    """Return the operations a second of matrix products on a device, the most of up to 8 measurements, which
    take 0.1 s. Beside other programs it is lower than what the device can do."""
    # A GPU needs larger products, and several between two waits
    rows, width, times = (256, 768, 1)
    if has_memory(device):
        rows, width, times = (8192, 2048, 10)
    states = torch.ones(rows, width, dtype=dtype, device=device)
    weight = torch.ones(width, width, dtype=dtype, device=device)
    seconds: list[float] = []
    linear(states, weight)
    while len(seconds) < 8 and sum(seconds) < 0.1:
        started = time.perf_counter()
        for _ in range(times):
            product = linear(states, weight)
        # Reading a value waits for any device; not every one has torch's `synchronize`
        product[0, 0].item()
        seconds.append(time.perf_counter() - started)
    return 2 * rows * width**2 * times / min(seconds)


def set_up_machine(config: TrainConfig, device: torch.device, local_world_size: int) -> None:
    """Set threads, allocator and precision of matrix products of a process that will train on `device`. More
    threads than cores can make a step ten times slower, so several processes get parts of the cores; a single
    one takes OMP_NUM_THREADS, if it is set. For several, launchers set it to 1."""
    if config.threads or local_world_size > 1 or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(config.threads or max(1, joblib.cpu_count() // local_world_size))
    keep_freed_memory()
    if is_cuda(device):
        # A run in fp32 keeps all its bits; in others, TF32 may compute what autocast leaves in fp32.
        torch.set_float32_matmul_precision("highest" if config.precision == "fp32" else "high")


def keep_few_kernels() -> None:
    """Let oneDNN and torch keep 64 compiled kernels each, not 1,024; to be called before the first product.
    In bf16 they compile a kernel for each size of a matrix, and nearly every packed batch has another number
    of tokens: 5 MB of kernels for BERT-base, between the tensors, so that less of the freed memory can be
    reused. A pass needs about 30. The user's own environment variables come first. See
    https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html and pytorch issue 27971."""
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


def keep_freed_memory() -> None:
    """Make malloc keep freed memory, except blocks of more than 32 MB, the most that glibc allows. A step
    asks for the memory that the previous step has freed. Pages that were returned to the system in between
    come back as new pages, which takes 5 % of a step of BERT-base in a virtual machine."""
    _malloc("mallopt", M_MMAP_THRESHOLD, 32 << 20)
    _malloc("mallopt", M_TRIM_THRESHOLD, -1)


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
