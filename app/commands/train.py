"""Train a classifier, in one process or in any of the modes.

python -m app train                                        a pretrained encoder on the embedded sample set
python -m app train --data.train reviews.csv               the same on your own file
python -m app train --mode ddp --data.train reviews.csv    one process for each GPU; two on the CPU
python -m app train --mode ddp --processes 4 --config configs/small_bert.yaml
torchrun --nproc_per_node=2 -m app train --mode ddp        the same, by a launcher of your own

In a clone, run_single.py, run_ddp.py, ... do the same. A mode of several processes starts them by its
launcher on this machine, and prints that command. Where a launcher started this command, such as torchrun,
accelerate launch, deepspeed, horovodrun or mpirun, each of its processes is a rank. Exit status: 0, 1 for a
run that could not continue, 2 for bad input, 128 + the signal that stopped it; torchrun has 1 for all.

  --mode MODE                             single, dp, ddp, mp, fsdp, accelerate, deepspeed or horovod
                                          (default: single)
  --processes N                           processes of a mode that has several (default: accelerators, or 2)
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NoReturn

from ..errors import InputError, say
from ..program import MODULE
from ..runtime.processes import child_environment, is_launched
from .parser import Parser, description_of, number

if TYPE_CHECKING:
    from ..config.schema import Config


def run(argv: list[str], program: str) -> int:
    """Train as the command line says; return the exit status, or start the processes of the mode in place of
    this one. Raises InputError for wrong settings, and for a mode that cannot run here."""
    parser = Parser(program, add_help=False)
    parser.add_argument("--mode", default="single")
    # The scripts call it --nprocs
    parser.add_argument("--processes", "--nprocs", type=number(int, 1))
    options, words = parser.parse_known_args(argv)
    from ..config.command_line import load_config

    config = load_config(words, program, description_of(__doc__, program))
    from ..modes import load_mode
    from ..run import run_in_mode

    launcher = load_mode(options.mode).launcher
    if options.processes is not None:
        check_processes(options.mode, launcher, options.processes)
    if launcher == "one" or is_launched():
        return run_in_mode(options.mode, config)
    if launcher == "spawn":
        return run_in_mode(options.mode, config, options.processes)
    return start_processes(options.mode, config, options.processes, words)


def check_processes(mode: str, launcher: str, processes: int) -> None:
    """Raise InputError where a number of processes cannot be chosen."""
    if launcher == "one" and processes > 1:
        raise InputError(
            f"--processes must be 1 in mode {mode}, which has one process, found {processes}; choose a mode "
            "of several, such as --mode ddp"
        )
    if launcher != "one" and is_launched():
        raise InputError(
            "--processes is for a start without launcher, and a launcher has started this process; remove "
            "it, and give the launcher the number"
        )


def start_processes(mode: str, config: Config, processes: int | None, words: list[str]) -> NoReturn:
    """Become the launcher of a mode, which starts this verb in each process: its signals and its exit status
    are those of this command. Raises InputError for a mode that cannot run here."""
    from ..modes import load_mode
    from ..modes.launch import launch_command
    from ..runs.series import plan_mode

    num_processes, unavailable = plan_mode(mode, processes, config.train.device)
    if unavailable:
        raise InputError(f"--mode {mode}: {unavailable}")
    program = ["-m", MODULE, "train", "--mode", mode, *words]
    command = launch_command(load_mode(mode).launcher, program, num_processes)
    say(f"Starting {num_processes} processes: {shlex.join(command)}")
    os.execve(command[0], command, child_environment())
