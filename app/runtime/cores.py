"""The cores of a machine: how many threads a process takes, how busy other programs keep the cores, and how
fast matrix products are."""

import os
import time
from functools import cache

import joblib
import psutil
import torch
from torch.nn.functional import linear

from ..errors import counted
from .devices import has_memory

LOAD_SECONDS = 0.1  # for which the load of the cores is watched
SPARE_CORES = 0.5  # work of other programs that is not worth a line
MAX_MEASUREMENTS = 8  # of the speed of matrix products
MEASURING_SECONDS = 0.1  # after which no further measurement begins


def set_threads(num_threads: int | None, local_world_size: int) -> None:
    """Set the threads of this process: `num_threads` or, without it, its part of the cores.

    More threads than cores can make a step ten times slower, so several processes get parts of the cores. A
    single one takes OMP_NUM_THREADS, if it is set; for several, launchers set that to 1.
    """
    if num_threads:
        torch.set_num_threads(num_threads)
    elif local_world_size > 1 or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, joblib.cpu_count() // local_world_size))


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
    for the slowest one, so a thread that shares its core can make a step several times as slow."""
    free_cores = len(busy) - sum(busy) + SPARE_CORES
    fitting_threads = max(1, int(free_cores) // processes)
    if threads * processes <= free_cores or fitting_threads >= threads:
        return None
    threads_of_run = counted(threads, "thread")
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
    rows = 256
    width = 768
    products = 1
    if has_memory(device):
        # A GPU needs larger products, and several between two waits
        rows = 8192
        width = 2048
        products = 10
    states = torch.ones(rows, width, dtype=dtype, device=device)
    weight = torch.ones(width, width, dtype=dtype, device=device)
    seconds: list[float] = []
    linear(states, weight)
    while len(seconds) < MAX_MEASUREMENTS and sum(seconds) < MEASURING_SECONDS:
        started = time.perf_counter()
        for _ in range(products):
            product = linear(states, weight)
        # Reading a value waits for any device; not every one has torch's `synchronize`
        product[0, 0].item()
        seconds.append(time.perf_counter() - started)
    return 2 * rows * width**2 * products / min(seconds)
