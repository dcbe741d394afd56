"""What every entry script calls: the command line, then one job in one mode."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from app.command_line import load_config
from app.errors import InputError

if TYPE_CHECKING:
    from app.config import Config


def main(mode: str, description: str, argv: list[str] | None = None) -> int:
    """Run one job in a mode from the command line; return the exit status: 0, or 2 for bad input.

    torch is imported only after the command line has been read, so that `--help` and its errors are quick.
    """
    try:
        config = load_config(argv, f"run_{mode}.py", description)
        if config.train.nprocs and mode != "mp":
            raise InputError(
                f"--nprocs is for run_mp.py, which starts its processes itself; run_{mode}.py has its own launcher, see --help"
            )
    except InputError as error:
        return _refuse(error)
    from app.strategies import load_strategy

    return load_strategy(mode).launch(work, (config, mode), config.train.nprocs)


def work(config: Config, mode: str) -> int:
    """Run one job in this process, which is one rank of the mode; return the exit status."""
    from app.job import Job
    from app.progress import start_logging
    from app.strategies import load_strategy

    try:
        start_logging(is_main=int(os.environ.get("RANK", 0)) == 0)
        with load_strategy(mode)(config.train) as strategy:
            Job(config, mode, strategy).run()
    except InputError as error:
        return _refuse(error)
    return 0


def _refuse(error: InputError) -> int:
    rank = int(os.environ.get("RANK", 0))
    print(f"error: {error}" if rank == 0 else f"error (rank {rank}): {error}", file=sys.stderr)
    return 2
