"""What all modes with a torch process group share: joining it, threads, gathering, a full checkpoint out and in."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from app.errors import InputError
from app.runtime.devices import choose_device
from app.runtime.heartbeat import Heartbeat
from app.strategies.base import Strategy

TIMEOUT = timedelta(minutes=30)  # rank 0 may tokenise a large file while the others wait


class ProcessGroupStrategy(Strategy):
    """A rank of a process group that a launcher described in the environment (RANK, WORLD_SIZE, LOCAL_RANK, ...)."""

    one_process = False
    heartbeat: Heartbeat | None = None

    @classmethod
    def missing(cls) -> str | None:
        return None if dist.is_available() else "this torch is built without torch.distributed; install another build"

    @classmethod
    def command(cls, script: list[str], processes: int) -> list[str]:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        return [sys.executable, *torchrun, *script]

    @classmethod
    def launch(cls, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        # `record` leaves the traceback where torchrun finds it, to print the first failure's as the last thing.
        leave(record(work)(*arguments))

    def __enter__(self) -> ProcessGroupStrategy:
        self.rank = int(os.environ.get("RANK", 0))
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))
        end_with_launcher()
        super().__enter__()
        self.join()
        return self

    def choose_device(self) -> torch.device:
        return choose_device(self.config.device, self.local_rank)

    def join(self) -> None:
        """Join the process group: gloo for the CPU, NCCL beside it where the device is CUDA."""
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        store = rendezvous_store(self.rank, self.world_size)
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world_size, timeout=TIMEOUT)
        if self.world_size > 1:
            self.heartbeat = Heartbeat(store.clone(), self.rank, self.world_size, self.config.timeout)

    def __exit__(self, *failure: Any) -> None:
        """Leave the group; after a failure the process just ends, which is what tells the others."""
        if self.heartbeat:
            self.heartbeat.stop()
        if failure[0] is None and dist.is_initialized():
            for group in self.groups():
                keep_for_ever(group)
            dist.destroy_process_group()

    def groups(self) -> list[dist.ProcessGroup]:
        """Return the process groups that this mode uses."""
        return [dist.group.WORLD]

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients; the factor undoes the averaging over ranks, which would make a mean of means."""
        super().backward(loss * self.world_size)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        count = torch.tensor([len(rows)], device=rows.device)
        counts = [torch.zeros_like(count) for _ in range(self.world_size)]
        dist.all_gather(counts, count)
        largest = max(int(c) for c in counts)
        padded = rows.new_zeros(largest, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[: int(c)] for part, c in zip(parts, counts, strict=True)])

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

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.plain_module().state_dict().items():
                if self.rank == 0:
                    value.copy_(state[name])
                dist.broadcast(value, src=0)

    def load_optimizer_state(self, state: dict[str, torch.Tensor]) -> None:
        super().load_optimizer_state(self.from_rank_0(state))

    def from_rank_0(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return rank 0's tensors on every rank, on its device."""
        shapes = self.broadcast({key: (value.shape, value.dtype) for key, value in state.items()})
        received = {}
        for key, (shape, dtype) in shapes.items():
            received[key] = (state[key] if self.rank == 0 else torch.empty(shape, dtype=dtype)).to(self.device)
            dist.broadcast(received[key], src=0)
        return received


def leave(status: int) -> NoReturn:
    """End this process with an exit status, and without Python's own shutdown.

    A thread of gloo that drops its last result while Python shuts down is ended by force, which aborts the process
    (SIGABRT, torch 2.13): a run in some hundreds that had done all its work would be reported as failed.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def keep_for_ever(group: dist.ProcessGroup) -> None:
    """Take a reference to a group that is never given back, so that its destructor does not run.

    In torch 2.13 gloo's destructor waits for the group's threads while it holds Python's lock, and such a thread may need
    that lock to drop its last result: one run in some dozens then hung at its very end.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def rendezvous_store(rank: int, world_size: int) -> dist.Store:
    """Return the store at MASTER_ADDR:MASTER_PORT through which the ranks find each other.

    A launcher that hosts the store itself says so (TORCHELASTIC_USE_AGENT_STORE); else rank 0 hosts it. Each restart has a
    prefix of its own, because a reused store still holds the addresses of the processes that died.
    """
    if world_size == 1 and "MASTER_ADDR" not in os.environ:
        return dist.HashStore()
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = dist.TCPStore(host, port, world_size, is_master=rank == 0 and not hosted, timeout=TIMEOUT)
    except dist.DistNetworkError as error:
        raise InputError(
            f"the ranks meet at {host}:{port} (MASTER_ADDR, MASTER_PORT), but rank {rank} cannot use that: {str(error).splitlines()[0]}; "
            "choose a free port, such as torchrun --master-port, or torchrun --standalone, which finds one"
        ) from error
    return dist.PrefixStore(f"restart{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


def end_with_launcher() -> None:
    """End this process when the one that started it is gone, so that a killed launcher leaves no orphan."""
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
