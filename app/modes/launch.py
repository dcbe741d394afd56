"""How the processes of a mode are started."""

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.elastic.multiprocessing.errors import record

from ..runtime.processes import leave

# After a failure: for the others to end by themselves, then for SIGTERM to end them, then SIGKILL
GRACE_SECONDS = 5


class Launcher:
    """How the processes of a mode are started, by its kind: `one` process, that of the script; `torchrun`, or
    any launcher that describes the group in the environment; `horovodrun`; `spawn`, by the script itself."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def command(self, program: list[str], processes: int) -> list[str]:
        """Return the command that runs a script or `-m module` with arguments in `processes` processes."""
        python, count = sys.executable, str(processes)
        torchrun = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
        horovodrun = [python, "-m", "horovod.runner.launch", "-np", count, "-H", f"localhost:{count}"]
        return {
            "one": [python, *program],
            "torchrun": [*torchrun, *program],
            "horovodrun": [*horovodrun, "--gloo", python, *program],
            "spawn": [python, *program, "--nprocs", count],
        }[self.kind]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        """Call `work(*arguments)`, here or in the launcher's processes; return the exit status. `nprocs` is
        for `spawn`; none: one process for each accelerator, or two on the CPU."""
        if self.kind == "one":
            return work(*arguments)
        if self.kind == "spawn":
            return spawn(work, arguments, nprocs or torch.accelerator.device_count() or 2)
        # `record` stores the traceback where torchrun looks for it, to print that of the first failure last.
        return end_after(record(work), arguments)


def spawn(work: Callable[..., int], arguments: tuple, nprocs: int) -> int:
    """Call `work` in new processes, pass signals on to them, and return their exit status."""
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
        # The process has printed why
        if error.signal_name is None:
            return error.exit_code
        if received:
            return 128 + received[0]
        raise
    return 0


def _start(local_rank: int, nprocs: int, port: int, work: Callable[..., int], arguments: tuple) -> None:
    names = {"RANK": local_rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": nprocs, "LOCAL_WORLD_SIZE": nprocs}
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    os.environ.update({name: str(value) for name, value in names.items()})
    end_after(work, arguments)


def end_after(work: Callable[..., int], arguments: tuple) -> NoReturn:
    """Call `work(*arguments)`, then end this process with its status, or 1 after an error; see `leave`. Where
    native code ends it, as gloo does by SIGABRT, the place in Python is printed."""
    faulthandler.enable(2)
    try:
        status = work(*arguments)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except Exception:  # noqa: BLE001 - Python's own way to end with it could abort the process
        # Printed here: a parent prints that of the first process that it sees end, which may have ended
        # because of this one.
        traceback.print_exc()
        status = 1
    leave(status)
