"""The ranks of a torch process group: how they are started, meet by a store, exchange, give signs of life."""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.elastic.multiprocessing.errors import record

from ..errors import InputError, first_line
from ..runtime.group import Group
from ..runtime.processes import end_with_launcher

TIMEOUT = timedelta(minutes=30)  # rank 0 may tokenise a large file while the others wait
BEAT_SECONDS = 1.0
GRACE_SECONDS = 5  # for the other processes to end after a failure, then for SIGTERM to end them


class TorchGroup(Group):
    """A process group that a launcher described in the environment (RANK, WORLD_SIZE, LOCAL_RANK, ...)."""

    heart: threading.Thread | None = None

    def __init__(self) -> None:
        env = os.environ
        try:
            self.rank, self.world_size = int(env.get("RANK", 0)), int(env.get("WORLD_SIZE", 1))
            self.local_rank = int(env.get("LOCAL_RANK", 0))
            self.local_world_size = int(env.get("LOCAL_WORLD_SIZE", self.world_size))
            self.store = self.meet()
        except (ValueError, dist.DistNetworkError) as error:
            raise InputError(
                "a launcher such as torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; "
                f"found: {first_line(error)}; choose a free port (torchrun --master-port, or "
                "--standalone, which finds one), or unset these to train in one process"
            ) from error
        self.has_left = threading.Event()
        end_with_launcher()

    def meet(self) -> dist.Store:
        """Return the store at MASTER_ADDR:MASTER_PORT through which the ranks find each other."""
        if not 0 <= self.rank < self.world_size:
            raise ValueError("RANK must be from 0 to WORLD_SIZE - 1")
        if self.world_size == 1:
            return dist.HashStore()
        store, *_ = next(dist.rendezvous("env://", timeout=TIMEOUT))
        # A store that the launcher hosts still holds, after a restart, the addresses of the processes that
        # died. Else rank 0 hosts a new one; machines that have joined later have counted fewer restarts.
        is_hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0) if is_hosted else 0
        return dist.PrefixStore(f"restart{restarts}", store)

    def join(self, device: torch.device, timeout: int) -> None:
        """Join the process group, with the back ends of `backends`."""
        own = backends(device)
        # Told its device, a back end such as NCCL connects at once, and never guesses the device of a rank
        # that has not sent a tensor yet.
        bound = None if own == "gloo" else device
        place = {"store": self.store, "rank": self.rank, "world_size": self.world_size}
        dist.init_process_group(own, **place, timeout=TIMEOUT, device_id=bound)
        self.device = device
        if self.world_size > 1:
            # Of its own, because the main thread may be waiting in another one
            connection = self.store.clone()
            self.heart = threading.Thread(target=self.beat, args=(connection, timeout), daemon=True)
            self.heart.start()

    def beat(self, store: dist.Store, timeout: int) -> None:
        """Beat once a second; end the process when the next rank is silent for `timeout` seconds, counted in
        own beats, so that a pause of the whole machine does not count. A collective fails at once where a
        process has died, but waits half an hour for one that is stopped, or whose machine is gone."""
        store.set_timeout(timedelta(seconds=BEAT_SECONDS))
        watched, silent, last = (self.rank + 1) % self.world_size, 0.0, b""
        own_key, key = f"beat{self.rank}", f"beat{watched}"
        while not self.has_left.wait(BEAT_SECONDS):
            asked_at, beat = time.monotonic(), last
            # A store that does not answer is a silence too
            with suppress(RuntimeError):
                store.set(own_key, str(asked_at))
                beat = store.get(key) if store.check([key]) else b""
            is_silent = beat == last and beat != b"left"
            silent = silent + BEAT_SECONDS + time.monotonic() - asked_at if is_silent else 0.0
            last = beat
            if silent >= timeout and not self.has_left.is_set():
                message = (
                    f"error (rank {self.rank}): rank {watched} has not responded for {timeout} seconds "
                    "(train.timeout): it is stopped, or its machine is gone; resume with --output.resume auto"
                )
                print(message, file=sys.stderr, flush=True)  # noqa: T201
                os._exit(1)
        # The process that hosted the store may be done too
        with suppress(RuntimeError):
            store.set(own_key, "left")

    def leave(self, has_failed: bool) -> None:
        self.has_left.set()
        if self.heart:
            self.heart.join(2 * BEAT_SECONDS)
        # Several ranks just end: after an error others may be waiting in the group, and its destructor may
        # hang, because it holds Python's lock while it waits for threads of gloo (torch 2.13).
        if self.world_size == 1 and dist.is_initialized():
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


def backends(device: torch.device) -> str:
    """Return the back ends of a process group on `device`: gloo for the CPU, and for a device what torch or
    the device's package has registered for it (nccl, xccl, hccl), where it is built in; else gloo for both.
    """
    own = dist.Backend.default_device_backend_map.get(device.type, "gloo")
    return f"cpu:gloo,{device.type}:{own}" if own != "gloo" and dist.is_backend_available(own) else "gloo"


def launch_command(launcher: str, program: list[str], processes: int) -> list[str]:
    """Return the command that runs a script or `-m module` with arguments in `processes` processes."""
    python, count = sys.executable, str(processes)
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
    horovodrun = [python, "-m", "horovod.runner.launch", "-np", count, "-H", f"localhost:{count}"]
    return {
        "one": [python, *program],
        "torchrun": [*torchrun, *program],
        "horovodrun": [*horovodrun, "--gloo", python, *program],
        "spawn": [python, *program, "--nprocs", count],
    }[launcher]


def launch(launcher: str, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
    """Call `work(*arguments)` in the processes of a `launcher`, and return the exit status: here, or in new
    processes of `spawn`, `nprocs` or one for each accelerator, or two on the CPU."""
    if launcher == "one":
        return work(*arguments)
    if launcher != "spawn":
        # `record` stores the traceback where torchrun looks for it, to print that of the first failure last.
        end_after(record(work), arguments)
    nprocs = nprocs or torch.accelerator.device_count() or 2
    # The parent hosts the store, on a port that the system chooses and that stays open from the start. So no
    # other program can take the port in between.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = mp.spawn(_start, (nprocs, store.port, work, arguments), nprocs, join=False)
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        for pid in processes.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    try:
        while not processes.join(grace_period=GRACE_SECONDS):
            pass
    except mp.ProcessExitedException as error:
        if error.signal_name is None:
            # The process has printed why
            return error.exit_code
        if not received:
            raise
        return 128 + received[0]
    return 0


def _start(local_rank: int, nprocs: int, port: int, work: Callable[..., int], arguments: tuple) -> None:
    names = {"RANK": local_rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": nprocs, "LOCAL_WORLD_SIZE": nprocs}
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    os.environ.update({name: str(value) for name, value in names.items()})
    end_after(work, arguments)


def end_after(work: Callable[..., int], arguments: tuple) -> NoReturn:
    """Call `work(*arguments)`, then end this process with its status, or 1 after an error. Where native code
    ends it, as gloo does by SIGABRT, the place in Python is printed."""
    faulthandler.enable(2)
    try:
        status = work(*arguments)
    except BaseException:  # noqa: BLE001 - Python's own way to end with it could abort the process
        # Printed here: a parent prints that of the first process that it sees end, which may have ended
        # because of this one.
        traceback.print_exc()
        status = 1
    # Without Python's own shutdown, which ends a thread of gloo by force and so aborts the process (SIGABRT,
    # torch 2.13): of some hundred complete runs, one was reported as failed.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
