"""The ranks of a run: how they are started, meet by a store, exchange and give signs of life, and how SIGTERM
and SIGINT stop them: in training all ranks finish the same step, save, and end; later, at once. Slurm and
Kubernetes send SIGTERM before they take a machine away; a person presses Ctrl-C."""

import faulthandler
import json
import logging
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn, Self

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.elastic.multiprocessing.errors import record

from ..errors import InputError, TrainingError, first_line, show
from ..runtime.processes import end_with_launcher

TIMEOUT = timedelta(minutes=30)  # rank 0 may tokenise a large file while the others wait
BEAT_SECONDS = 1.0
GRACE_SECONDS = 5  # for the other processes to end after a failure, then for SIGTERM to end them
# Where ranks received different signals, the first of these is taken
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_SIGNAL_SECONDS = 1.0


class Group:
    """The processes of a run; `rank == 0` prints and writes. `rank` and `world_size` count all processes,
    `local_rank` and `local_world_size` those of this machine. Every rank must call each method. This class is
    a process alone, for which all of this is trivial."""

    rank = 0
    world_size = 1
    local_rank = 0
    local_world_size = 1
    # Whether it is the process group of torch.distributed. A program that uses this package may have one of
    # its own, which says nothing about this group.
    is_of_torch = False

    def join(self, device: torch.device, timeout: int) -> None:
        """Meet the other processes. A process that does not respond for `timeout` seconds ends the others."""

    def leave(self, has_failed: bool) -> None:
        """Part from the other processes; after a failure this process just ends, which tells the others."""

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows of every rank, concatenated on dim 0, on every rank; their counts may differ."""
        return rows

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of `values` over all ranks, on every rank."""
        return values

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value` (any picklable object) on every rank."""
        return value

    def gather_values(self, value: Any) -> list[Any]:
        """Return every rank's `value`, which can be written as JSON, in the order of ranks, on every rank."""
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = self.gather(torch.tensor([len(content)])).tolist()
        return [json.loads(bytes(part.tolist())) for part in self.gather(content).split(lengths)]

    def on_rank_0(self, work: Callable[[], Any]) -> Any:
        """Call `work` on rank 0 only, and return its result (any picklable object) on every rank. Where it
        fails, every rank raises: InputError where rank 0 does, else TrainingError with the reason."""
        if self.world_size == 1:
            return work()
        result, failure = None, None
        if self.rank == 0:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
        told = failure and (isinstance(failure, InputError), f"rank 0 has ended: {failure}")
        result, told = self.broadcast((result, told))
        if told:
            # No rank ends before all of them know why; the first one to end may break the connection
            with suppress(RuntimeError):
                self.reduce_sum(torch.zeros(1))
            if failure:
                raise failure
            is_input_error, message = told
            raise (InputError if is_input_error else TrainingError)(message)
        return result


class TorchGroup(Group):
    """A process group that a launcher described in the environment (RANK, WORLD_SIZE, LOCAL_RANK, ...)."""

    is_of_torch = True
    heartbeat: threading.Thread | None = None

    def __init__(self) -> None:
        env = os.environ
        try:
            self.rank = int(env.get("RANK", 0))
            self.world_size = int(env.get("WORLD_SIZE", 1))
            self.local_rank = int(env.get("LOCAL_RANK", 0))
            # DeepSpeed's launcher sets LOCAL_SIZE only.
            local_size = env.get("LOCAL_WORLD_SIZE") or env.get("LOCAL_SIZE")
            if local_size:
                self.local_world_size = int(local_size)
            if not 0 <= self.rank < self.world_size:
                raise ValueError("RANK must be from 0 to WORLD_SIZE - 1")
            # Through it the ranks find each other, at MASTER_ADDR:MASTER_PORT
            self.store = dist.HashStore()
            if self.world_size > 1:
                store, *_ = next(dist.rendezvous("env://", timeout=TIMEOUT))
                # A store that the launcher hosts still has, after a restart, the addresses of dead processes,
                # so each restart gets names with its number. A store that rank 0 hosts is new, and machines
                # that joined later have counted fewer restarts.
                is_hosted = env.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
                restarts = env.get("TORCHELASTIC_RESTART_COUNT", 0) if is_hosted else 0
                self.store = dist.PrefixStore(f"restart{restarts}", store)
            if self.world_size > 1 and not local_size:
                self.local_world_size = self.count_processes_here()
        except (ValueError, dist.DistNetworkError) as error:
            raise InputError(
                "a launcher such as torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; "
                f"found: {first_line(error)}; choose a free port (torchrun --master-port, or "
                "--standalone, which finds one), or unset these to train in one process"
            ) from error
        self.has_left = threading.Event()
        end_with_launcher()

    def count_processes_here(self) -> int:
        """Return how many processes of the group this machine has, where the launcher does not say it, as
        srun and mpirun do not. Every rank must call it."""
        own_host = platform.node()
        self.store.set(f"host{self.rank}", own_host)
        hosts = [self.store.get(f"host{rank}").decode() for rank in range(self.world_size)]
        return hosts.count(own_host)

    def join(self, device: torch.device, timeout: int) -> None:
        own = backends(device)
        # Told its device, a back end such as NCCL connects at once, and never guesses one.
        bound = None if own == "gloo" else device
        place = {"store": self.store, "rank": self.rank, "world_size": self.world_size}
        dist.init_process_group(own, **place, timeout=TIMEOUT, device_id=bound)
        self.device = device
        if self.world_size > 1:
            # The thread gets its own connection: the main thread may be waiting in the first one
            connection = self.store.clone()
            self.heartbeat = threading.Thread(target=self.beat, args=(connection, timeout), daemon=True)
            self.heartbeat.start()

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
        if self.heartbeat:
            self.heartbeat.join(2 * BEAT_SECONDS)
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
    the device's package has registered for it (nccl, xccl, hccl), where it is built in; or gloo for both."""
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
        # This ends the process; `record` stores the traceback where torchrun looks for the first one's
        end_after(record(work), arguments)
    nprocs = nprocs or torch.accelerator.device_count() or 2
    # The parent hosts the store, on a port that the system chooses, so no other program can take it.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = mp.spawn(_start, (nprocs, store.port, work, arguments), nprocs, join=False)
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        for pid in processes.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in SIGNALS:
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
        # It is printed here: a parent prints only the error of the first process that it sees end, and that
        # one may have ended because of this one.
        traceback.print_exc()
        status = 1
    # Without Python's own shutdown, which ends a thread of gloo by force and so aborts the process (SIGABRT,
    # torch 2.13): of some hundred complete runs, one was reported as failed.
    logging.shutdown()
    status = status or show("")
    sys.stderr.flush()
    os._exit(status)


class Stopped(BaseException):
    """A signal has ended this process with nothing to save; no Exception, so that nothing catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def set_handlers(receive: Callable[[int, Any], None]) -> dict[int, Any]:
    """Call `receive` for each signal from now on; return the old handlers, none outside the main thread. Only
    the main thread may set handlers; a training in another one is stopped by its program."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, receive) for number in SIGNALS}


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Give a context in which the first SIGTERM or SIGINT raises `Stopped`; the second does what it did."""

    def receive(number: int, frame: object) -> None:
        restore()
        raise Stopped(number)

    def restore() -> None:
        for number, handler in previous_handlers.items():
            # Another handler here means that the work is complete and signals are ignored: they stay so
            if signal.getsignal(number) is receive:
                signal.signal(number, handler)

    previous_handlers = set_handlers(receive)
    try:
        yield
    finally:
        restore()


class StopSignals:
    """A context in which the first SIGTERM or SIGINT is only recorded; the second ends this process. A signal
    may reach one rank or all, at different steps. So in each step the ranks sum up what they received, on the
    CPU. The same sum tells all ranks that one of them cannot write a file. Once the ranks have agreed to
    stop, or training has ended with an error, each of several ranks ignores SIGTERM from the end of the
    context on: a launcher sends it as soon as the first rank has ended."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.received, self.received_at, self.stopped_by = 0, 0.0, 0

    def __enter__(self) -> Self:
        self.previous_handlers = set_handlers(self.receive)
        return self

    def __exit__(self, *failure: Any) -> None:
        is_over = self.stopped_by or any(isinstance(part, TrainingError) for part in failure)
        if is_over and self.previous_handlers and self.group.world_size > 1:
            self.previous_handlers[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)

    def receive(self, number: int, frame: object = None) -> None:
        # Ctrl-C reaches every process of a terminal, and a launcher forwards it: its workers get it twice.
        same = self.group.world_size > 1 and time.monotonic() - self.received_at < SAME_SIGNAL_SECONDS
        if self.received and not same:
            os._exit(128 + number)
        if not self.received:
            self.received, self.received_at = number, time.monotonic()

    def ignore_later_ones(self) -> None:
        """Ignore all signals from the end of the context on: the work of this process is complete."""
        self.previous_handlers = dict.fromkeys(self.previous_handlers, signal.SIG_IGN)

    def agree(self, has_failed: bool) -> bool:
        """Let a signal that any rank has received be `stopped_by` on all ranks alike, and return whether any
        rank has failed; every rank calls it each step."""
        flags = torch.tensor([*(self.received == number for number in SIGNALS), has_failed])
        terms, interrupts, failures = self.group.reduce_sum(flags.long()).tolist()
        self.stopped_by = int(SIGNALS[0] if terms else SIGNALS[1] if interrupts else 0)
        return failures > 0
