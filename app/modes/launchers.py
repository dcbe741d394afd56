"""How the processes of a mode are started: without a launcher, by torchrun or its like, by horovodrun."""

import faulthandler
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from torch.distributed.elastic.multiprocessing.errors import record

from ..runtime.processes import leave


class Launcher:
    """No launcher: the mode is the one process that was started."""

    # Whether a run of the mode is always one process
    one_process = True
    # Whether the entry script starts the processes itself, so that it takes --nprocs
    starts_processes = False

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


class Horovodrun(Launcher):
    """horovodrun, which starts Python once for each process."""

    one_process = False

    def command(self, program: list[str], processes: int) -> list[str]:
        options = ["-m", "horovod.runner.launch", "-np", str(processes)]
        options += ["-H", f"localhost:{processes}", "--gloo"]
        return [sys.executable, *options, sys.executable, *program]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
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
