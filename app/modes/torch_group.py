"""The process group of torch.distributed: its ranks meet by a store, and exchange tensors
over gloo or what the device has."""

import os
import platform
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import InputError, first_line
from ..runtime.processes import end_with_launcher
from .group import Group
from .heartbeat import Heartbeat

# Of a collective, in which others wait while a machine with a cache of its own tokenises a large file
TIMEOUT = timedelta(minutes=30)
LONGEST_SLEEP = 1.0  # seconds between two looks whether rank 0 is done
WORKS_OF_RANK_0 = "works_of_rank_0"  # the key of the store that counts what rank 0 has done


class TorchGroup(Group):
    """A process group that a launcher described in the environment (RANK, WORLD_SIZE, LOCAL_RANK, ...)."""

    is_of_torch = True

    def __init__(self) -> None:
        self.heartbeat: Heartbeat | None = None
        self.num_works = 0
        try:
            self.read_environment()
            self.store = self.open_store()
            if not self.local_world_size:
                self.local_world_size = self.count_processes_here()
        except (ValueError, dist.DistNetworkError) as error:
            raise InputError(
                "a launcher such as torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; "
                f"found: {first_line(error)}; choose a free port (torchrun --master-port, or "
                "--standalone, which finds one), or unset these to train in one process"
            ) from error
        end_with_launcher()

    def read_environment(self) -> None:
        """Set the numbers of this rank; `local_world_size` is 0 where the launcher does not give it."""
        self.rank = int(os.environ.get("RANK", 0))
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        # DeepSpeed's launcher sets LOCAL_SIZE only.
        local_size = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE")
        if local_size:
            self.local_world_size = int(local_size)
        elif self.world_size > 1:
            self.local_world_size = 0
        if not 0 <= self.rank < self.world_size:
            raise ValueError("RANK must be from 0 to WORLD_SIZE - 1")

    def open_store(self) -> dist.Store:
        """Return the store by which the ranks find each other, at MASTER_ADDR:MASTER_PORT."""
        if self.world_size == 1:
            return dist.HashStore()
        store, *_ = next(dist.rendezvous("env://", timeout=TIMEOUT))
        # A store that the launcher hosts still has, after a restart, the addresses of dead processes,
        # so each restart gets names with its number. A store that rank 0 hosts is new, and machines
        # that joined later have counted fewer restarts.
        restarts = "0"
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True":
            restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return dist.PrefixStore(f"restart{restarts}", store)

    def count_processes_here(self) -> int:
        """Return how many processes of the group this machine has, where the launcher does
        not say it, as srun and mpirun do not. Every rank must call it."""
        own_host = platform.node()
        self.store.set(f"host{self.rank}", own_host)
        hosts = [self.store.get(f"host{rank}").decode() for rank in range(self.world_size)]
        return hosts.count(own_host)

    def join(self, device: torch.device, timeout: int) -> None:
        backend = backends(device)
        dist.init_process_group(
            backend,
            store=self.store,
            rank=self.rank,
            world_size=self.world_size,
            timeout=TIMEOUT,
            # Told its device, a back end such as NCCL connects at once, and never guesses one.
            device_id=None if backend == "gloo" else device,
        )
        self.device = device
        if self.world_size > 1:
            # The thread gets its own connection: the main thread may be waiting in the first one
            connection = self.store.clone()
            self.heartbeat = Heartbeat(connection, self.rank, self.world_size, timeout)
            self.heartbeat.start()

    def leave(self, has_failed: bool) -> None:
        if self.heartbeat is not None:
            self.heartbeat.stop()
        # Several ranks just end: after an error others may be waiting in the group, and its destructor may
        # hang, because it holds Python's lock while it waits for threads of gloo (torch 2.13).
        if self.world_size == 1 and dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        # All ranks send equally many rows, and those beyond a rank's own count are dropped
        count = torch.tensor([len(rows)], device=rows.device)
        counts = [torch.zeros_like(count) for _ in range(self.world_size)]
        dist.all_gather(counts, count)
        padded = rows.new_zeros(int(max(counts)), *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[: int(count)] for part, count in zip(gathered, counts, strict=True)])

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    def add_up(self, values: torch.Tensor) -> None:
        dist.all_reduce(values)

    def wait_for_rank_0(self) -> None:
        self.num_works += 1
        if self.rank == 0:
            self.store.add(WORKS_OF_RANK_0, 1)
            return
        # The heartbeat ends this process where rank 0 does not respond any more
        seconds = 0.001
        while self.store.add(WORKS_OF_RANK_0, 0) < self.num_works:
            time.sleep(seconds)
            seconds = min(2 * seconds, LONGEST_SLEEP)

    def broadcast(self, value: Any) -> Any:
        holder = [value]
        dist.broadcast_object_list(holder, src=0, device=self.device)
        return holder[0]


def backends(device: torch.device) -> str:
    """Return the back ends of a process group on `device`: gloo for the CPU, and for a
    device what torch or the device's package has registered for it (nccl, xccl, hccl),
    where it is built in; or gloo for both."""
    device_backend = dist.Backend.default_device_backend_map.get(device.type, "gloo")
    if device_backend == "gloo" or not dist.is_backend_available(device_backend):
        return "gloo"
    return f"cpu:gloo,{device.type}:{device_backend}"
