"""How the processes of a run are started, and how each of them ends."""

import faulthandler
import logging
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

from ..errors import show
from .signals import SIGNALS

GRACE_SECONDS = 5  # for the other processes to end after a failure, then for SIGTERM to end them


def launch_command(launcher: str, program: list[str], processes: int) -> list[str]:
    """Return the command that runs a script or `-m module` with arguments in `processes` processes."""
    python = sys.executable
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    horovodrun = [python, "-m", "horovod.runner.launch", "-np", str(processes)]
    commands = {
        "one": [python, *program],
        "torchrun": [*torchrun, *program],
        "horovodrun": [*horovodrun, "-H", f"localhost:{processes}", "--gloo", python, *program],
        "spawn": [python, *program, "--nprocs", str(processes)],
    }
    return commands[launcher]


def launch(launcher: str, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
    """Call `work(*arguments)` in the processes of a `launcher`, and return the exit status:
    here, or in new processes of `spawn`, `nprocs` or one for each accelerator, or two on
    the CPU."""
    if launcher == "one":
        return work(*arguments)
    if launcher != "spawn":
        # This ends the process; `record` stores the traceback where torchrun looks for the first one's
        end_after(record(work), arguments)
    return spawn(work, arguments, nprocs or torch.accelerator.device_count() or 2)


def spawn(work: Callable[..., int], arguments: tuple, nprocs: int) -> int:
    """Call `work(*arguments)` in `nprocs` new processes, and return the exit status.
    Signals that this process receives are sent on to them."""
    # The parent hosts the store, on a port that the system chooses, so no other program can take it.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = mp.spawn(be_spawned_rank, (nprocs, store.port, work, arguments), nprocs, join=False)
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


def be_spawned_rank(
    local_rank: int, nprocs: int, port: int, work: Callable[..., int], arguments: tuple
) -> NoReturn:
    """Set the variables that torchrun would set, do the work, and end this process."""
    variables = {
        "RANK": local_rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": nprocs,
        "LOCAL_WORLD_SIZE": nprocs,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    for name, value in variables.items():
        os.environ[name] = str(value)
    end_after(work, arguments)


def end_after(work: Callable[..., int], arguments: tuple) -> NoReturn:
    """Call `work(*arguments)`, then end this process with its status, or 1 after an error.
    Where native code ends it, as gloo does by SIGABRT, the place in Python is printed."""
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
