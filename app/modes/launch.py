"""How the processes of a mode are started: without a launcher, by torchrun or its like, by horovodrun, or by
`mp.spawn`."""

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
    """No launcher: the mode is the one process that was started."""

    one_process = True  # whether a run of the mode is always one process
    starts_processes = False  # whether the entry script starts the processes, so that it takes --nprocs

    def command(self, program: list[str], processes: int) -> list[str]:
        """Return the command that runs a script or `-m module` with arguments in `processes` processes."""
        return [sys.executable, *program]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        """Call `work(*arguments)`, here or in the launcher's processes; return the exit status."""
        return work(*arguments)


class Torchrun(Launcher):
    """torchrun, torch.distributed.launch, or any launcher that describes the group in the environment."""

    one_process = False

    def command(self, program: list[str], processes: int) -> list[str]:
        options = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        return [sys.executable, *options, *program]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        # `record` stores the traceback where torchrun looks for it, to print that of the first failure last.
        end_after(record(work), arguments)


class Horovodrun(Torchrun):
    """horovodrun, which starts Python once for each process."""

    def command(self, program: list[str], processes: int) -> list[str]:
        options = ["-m", "horovod.runner.launch", "-np", str(processes)]
        options += ["-H", f"localhost:{processes}", "--gloo"]
        return [sys.executable, *options, sys.executable, *program]


class Spawn(Launcher):
    """One command starts `nprocs` processes: one for each accelerator, or two on the CPU."""

    one_process = False
    starts_processes = True

    def command(self, program: list[str], processes: int) -> list[str]:
        return [sys.executable, *program, "--nprocs", str(processes)]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        # The parent hosts the store, on a port that the system chooses and that stays open from the start. So
        # no other program can take the port in between.
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        nprocs = nprocs or torch.accelerator.device_count() or 2
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
