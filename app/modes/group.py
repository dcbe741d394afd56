"""The ranks of a torch process group: meeting by a store, collectives, signs of life."""

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import InputError
from ..runtime.group import Group
from ..runtime.processes import end_with_launcher, launched_number
from .launch import Launcher
from .mode import Mode

TIMEOUT = timedelta(minutes=30)  # rank 0 may tokenise a large file while the others wait
BEAT_SECONDS = 1.0


class TorchGroup(Group):
    """A process group that a launcher described in the environment (RANK, WORLD_SIZE, LOCAL_RANK, ...)."""

    heart: threading.Thread | None = None

    def __init__(self) -> None:
        self.world_size = launched_number("WORLD_SIZE", 1, least=1)
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if self.world_size > 1 and missing:
            raise InputError(
                "the environment must have RANK, MASTER_ADDR and MASTER_PORT where WORLD_SIZE is set (to "
                f"{self.world_size}), found no {' and no '.join(missing)}; start with a launcher, such as "
                "torchrun, which sets them, or unset WORLD_SIZE to train in one process"
            )
        self.rank = launched_number("RANK", 0, most=self.world_size - 1)
        self.local_rank = launched_number("LOCAL_RANK", 0)
        self.local_world_size = launched_number("LOCAL_WORLD_SIZE", self.world_size, least=1)
        self.has_left = threading.Event()
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
            # Of its own, because the main thread may be waiting in another one
            connection = store.clone()
            self.heart = threading.Thread(target=self.beat, args=(connection, timeout), daemon=True)
            self.heart.start()

    def beat(self, store: dist.Store, timeout: int) -> None:
        """Beat for this rank once a second; end the process when the next rank is silent for `timeout`
        seconds. A collective fails at once where a process has died, but waits half an hour for one that is
        only stopped, or whose machine is gone.

        The silence is counted in beats of this rank, so that a pause of the whole machine does not count.
        """
        store.set_timeout(timedelta(seconds=BEAT_SECONDS))
        watched, silent, last = (self.rank + 1) % self.world_size, 0.0, b""
        own_key, key = f"beat{self.rank}", f"beat{watched}"
        while silent < timeout:
            if self.has_left.wait(BEAT_SECONDS):
                # The process that hosted the store may be done too
                with suppress(RuntimeError):
                    store.set(own_key, "left")
                return
            asked_at, beat = time.monotonic(), last
            # A store that does not answer is a silence too
            with suppress(RuntimeError):
                store.set(own_key, str(asked_at))
                beat = store.get(key) if store.check([key]) else b""
            is_silent = beat == last and beat != b"left"
            silent = silent + BEAT_SECONDS + time.monotonic() - asked_at if is_silent else 0.0
            last = beat
        if not self.has_left.is_set():
            message = (
                f"error (rank {self.rank}): rank {watched} has not responded for {timeout} seconds "
                "(train.timeout): it is stopped, or its machine cannot be reached. This rank ends; resume "
                "from the last training state with --output.resume auto"
            )
            print(message, file=sys.stderr, flush=True)  # noqa: T201
            os._exit(1)

    def leave(self, has_failed: bool) -> None:
        self.has_left.set()
        if self.heart:
            self.heart.join(2 * BEAT_SECONDS)
        # After an error the other ranks may be waiting, and leaving would hang; a single rank has none to
        # wait for.
        if dist.is_initialized() and (not has_failed or self.world_size == 1):
            # In torch 2.13 gloo's destructor waits for the group's threads while it holds Python's lock, and
            # such a thread may need that lock to release its last result: one run in some dozens then hung
            # at its very end. So no group, DeepSpeed's own ones among them, is ever freed.
            for group in list(dist.distributed_c10d._world.pg_map):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
            dist.destroy_process_group()

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
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

    def broadcast(self, value: Any) -> Any:
        holder = [value]
        dist.broadcast_object_list(holder, src=0, device=self.device)
        return holder[0]


class ProcessGroupMode(Mode):
    """A rank of a torch process group."""

    launcher = Launcher("torchrun")
    group_class = TorchGroup

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients; the factor undoes the averaging over ranks, which would make a mean of means."""
        super().backward(loss * self.group.world_size)


def backends(device: torch.device) -> str:
    """Return the back ends of a process group on `device`: gloo for the CPU, and for a device what torch or
    the device's package has registered for it (nccl, xccl, hccl), where it is built in; else gloo for both.
    """
    own = dist.Backend.default_device_backend_map.get(device.type, "gloo")
    return f"cpu:gloo,{device.type}:{own}" if own != "gloo" and dist.is_backend_available(own) else "gloo"


def rendezvous_store(rank: int, world_size: int) -> dist.Store:
    """Return the store at MASTER_ADDR:MASTER_PORT through which the ranks find each other.

    A launcher that hosts the store itself says so (TORCHELASTIC_USE_AGENT_STORE); then each restart uses its
    own prefix, because the store still holds the addresses of the processes that died. Else rank 0 hosts
    a new one; machines that have joined later have counted fewer restarts.
    """
    if world_size == 1:
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
