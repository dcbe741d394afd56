"""How the processes of a mode are started: without a launcher, by torchrun or one like it, or by
horovodrun."""

from __future__ import annotations

import sys
from collections.abc import Callable

from torch.distributed.elastic.multiprocessing.errors import record

from ..runtime.processes import leave


class Launcher:
    """No launcher: the mode is the one process that was started."""

    # Whether a run of the mode is always one process
    one_process = True
    # Whether the entry script starts the processes itself, so that it takes --nprocs
    starts_processes = False

    def command(self, program: list[str], processes: int) -> list[str]:
        """Return the command that runs a program (a script or `-m module`, and arguments) in `processes`
        processes here."""
        return [sys.executable, *program]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        """Call `work(*arguments)`, here or in the processes that the launcher starts; return the exit
        status."""
        return work(*arguments)


class Torchrun(Launcher):
    """torchrun, torch.distributed.launch, or any launcher that describes the group in the environment."""

    one_process = False

    def command(self, program: list[str], processes: int) -> list[str]:
        options = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        return [sys.executable, *options, *program]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        # `record` stores the traceback where torchrun looks for it, to print that of the first failure last.
        leave(record(work)(*arguments))


class Horovodrun(Launcher):
    """horovodrun, which starts Python once for each process."""

    one_process = False

    def command(self, program: list[str], processes: int) -> list[str]:
        options = [
            "-m",
            "horovod.runner.launch",
            "-np",
            str(processes),
            "-H",
            f"localhost:{processes}",
            "--gloo",
        ]
        return [sys.executable, *options, sys.executable, *program]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        leave(work(*arguments))
