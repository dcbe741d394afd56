"""What every entry script calls: read the command line, then run one job in one mode."""

from __future__ import annotations

import re
import signal
import sys
import time
from typing import TYPE_CHECKING

from app.config.command_line import load_config
from app.errors import InputError, TrainingError
from app.runtime.processes import launched_rank

if TYPE_CHECKING:
    from app.config.schema import Config

LOST_RANK = (
    "(closed|reset) by peer|Broken pipe|remote process exited"  # in errors of gloo and NCCL after a rank has ended
)
LINGER_SECONDS = 2.5  # DeepSpeed's launcher checks its processes once a second, the others more often


def main(mode: str, description: str, argv: list[str] | None = None) -> int:
    """Run one job in a mode from the command line; return the exit status, see `work`.

    torch is imported only after the command line has been read, so that `--help` and its errors are quick.
    """
    try:
        config = load_config(argv, f"run_{mode}.py", description)
        from app.strategies import load_strategy

        if config.train.nprocs and not load_strategy(mode).launcher.starts_processes:
            raise InputError(
                f"--nprocs is for run_mp.py, which starts its processes itself; run_{mode}.py has its own launcher, see --help"
            )
        if reason := load_strategy(mode).unavailable_reason():
            raise InputError(reason)
    except InputError as error:
        return _refuse(error)
    return load_strategy(mode).launcher.launch(work, (config, mode), config.train.nprocs)


def work(config: Config, mode: str) -> int:
    """Run one job in this process, which is one rank of the mode; return the exit status.

    It is 0; 2 for bad input; 1 for a run that could not continue; 128 + the number of the signal that stopped it.
    """
    from app.run.job import Job
    from app.run.log.setup import start_logging
    from app.strategies import open_strategy
    from app.training.out_of_memory import first_line, is_out_of_memory

    try:
        start_logging(is_main=launched_rank() == 0)
        with open_strategy(mode, config) as strategy:
            return Job(config, mode, strategy).run()
    except InputError as error:
        return _refuse(error)
    except TrainingError as error:
        return _refuse(error, status=1)
    except RuntimeError as error:
        if is_out_of_memory(error):  # outside of a training step
            return _refuse(TrainingError(f"memory ran out: {first_line(error)}; lower train.eval_batch_size"), status=1)
        if not re.search(LOST_RANK, str(error)):
            raise
        # Launchers report the first process that ends: let that be the rank that failed, not this one.
        time.sleep(LINGER_SECONDS)
        return _refuse(
            TrainingError("the connection to another rank is lost, because it has ended; see its own message"), status=1
        )
    except KeyboardInterrupt:  # before or after the training, when there is nothing to save
        return 128 + signal.SIGINT


def _refuse(error: Exception, status: int = 2) -> int:
    rank = launched_rank()
    print(f"error: {error}" if rank == 0 else f"error (rank {rank}): {error}", file=sys.stderr)
    return status
