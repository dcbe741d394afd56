"""What modes with a torch process group share: meeting by a store, collectives, a state from rank 0."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import InputError
from ..runtime.group import Group
from ..runtime.heartbeat import Heartbeat
from ..runtime.processes import end_with_launcher, launched_number
from .launchers import Torchrun
from .mode import Mode

# Rank 0 may tokenise a large file while the others wait
TIMEOUT = timedelta(minutes=30)


class TorchGroup(Group):
    """A process group that a launcher described in the environment (RANK, WORLD_SIZE, LOCAL_RANK, ...)."""

    heartbeat: Heartbeat | None = None

    def __init__(self) -> None:
        self.world_size = launched_number("WORLD_SIZE", 1, least=1)
        if self.world_size > 1:
            check_environment(self.world_size)
        self.rank = launched_number("RANK", 0)
        if self.rank >= self.world_size:
            raise InputError(
                f"RANK must be below WORLD_SIZE, {self.world_size}, found {self.rank}; a launcher sets both, "
                "see --help"
            )
        self.local_rank = launched_number("LOCAL_RANK", 0)
        self.local_world_size = launched_number("LOCAL_WORLD_SIZE", self.world_size, least=1)
        end_with_launcher()

    def join(self, device: torch.device, timeout: int) -> None:
        """Join the process group, with the back ends of `backends`."""
        own = backends(device)
        store = rendezvous_store(self.rank, self.world_size)
        # Told its device, a back end such as NCCL connects at once, and never guesses the device of a rank
        # that has not sent a tensor yet.
        bound = None if own == "gloo" else device
        dist.init_process_group(
            own, store=store, rank=self.rank, world_size=self.world_size, timeout=TIMEOUT, device_id=bound
        )
        self.device = device
        if self.world_size > 1:
            self.heartbeat = Heartbeat(store.clone(), self.rank, self.world_size, timeout)

    def leave(self, has_failed: bool) -> None:
        if self.heartbeat:
            self.heartbeat.stop()
        # After an error the other ranks may be waiting, and leaving would hang; a single rank has none to
        # wait for.
        if dist.is_initialized() and (not has_failed or self.world_size == 1):
            # All groups of this process; DeepSpeed's own ones are listed here only.
            for group in list(dist.distributed_c10d._world.pg_map):
                _never_free(group)
            dist.destroy_process_group()

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        count = torch.tensor([len(rows)], device=rows.device)
        counts = [torch.zeros_like(count) for _ in range(self.world_size)]
        dist.all_gather(counts, count)
        largest = max(int(c) for c in counts)
        padded = rows.new_zeros(largest, *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[: int(c)] for part, c in zip(gathered, counts, strict=True)])

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    def start_sum(self, values: torch.Tensor) -> Callable[[], torch.Tensor]:
        work = dist.all_reduce(values, async_op=True)

        def wait() -> torch.Tensor:
            work.wait()
            return values

        return wait

    def broadcast(self, value: Any) -> Any:
        holder = [value]
        dist.broadcast_object_list(holder, src=0, device=self.device)
        return holder[0]


def backends(device: torch.device) -> str:
    """Return the back ends of a process group on `device`: gloo for the CPU, and for a device what torch or
    the device's package has registered for it (nccl, xccl, hccl), where it is built in; else gloo for both.
    """
    own = dist.Backend.default_device_backend_map.get(device.type, "gloo")
    return f"cpu:gloo,{device.type}:{own}" if own != "gloo" and dist.is_backend_available(own) else "gloo"


class ProcessGroupMode(Mode):
    """A rank of a torch process group."""

    launcher = Torchrun()
    group_class = TorchGroup

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients; the factor undoes the averaging over ranks, which would make a mean of means."""
        super().backward(loss * self.group.world_size)


def check_environment(world_size: int) -> None:
    """Raise InputError unless the environment says who this rank is and where the ranks meet."""
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise InputError(
            "the environment must have RANK, MASTER_ADDR and MASTER_PORT where WORLD_SIZE is set (to "
            f"{world_size}), found no {' and no '.join(missing)}; start with a launcher, such as torchrun, "
            "which sets them, or unset WORLD_SIZE to train in one process"
        )


def rendezvous_store(rank: int, world_size: int) -> dist.Store:
    """Return the store at MASTER_ADDR:MASTER_PORT through which the ranks find each other.

    A launcher that hosts the store itself says so (TORCHELASTIC_USE_AGENT_STORE); then each restart uses its
    own prefix, because the store still holds the addresses of the processes that died. Else rank 0 hosts
    a new one; machines that have joined later have counted fewer restarts.
    """
    if world_size == 1 and not (os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT")):
        return dist.HashStore()
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
    host, port = os.environ["MASTER_ADDR"], launched_number("MASTER_PORT", 0, least=1, most=65535)
    try:
        store = dist.TCPStore(host, port, world_size, is_master=rank == 0 and not hosted, timeout=TIMEOUT)
    except dist.DistNetworkError as error:
        raise InputError(
            f"the ranks meet at {host}:{port} (MASTER_ADDR, MASTER_PORT), but rank {rank} cannot use that: "
            f"{str(error).splitlines()[0]}; choose a free port, such as torchrun --master-port, or torchrun "
            "--standalone, which finds one"
        ) from error
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0) if hosted else 0
    return dist.PrefixStore(f"restart{restarts}", store)


def _never_free(group: dist.ProcessGroup) -> None:
    """Take a reference to a group that is never released, so that its destructor does not run.

    In torch 2.13 gloo's destructor waits for the group's threads while it holds Python's lock, and such a
    thread may need that lock to release its last result: one run in some dozens then hung at its very end.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
